"""Commands that show, explain and change what is on a cluster: why, top, pools, submit, cancel, page."""
