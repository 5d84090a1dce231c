"""How free capacity of a pool is kept from other pods: taints and placeholders."""
