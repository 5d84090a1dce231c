"""The archive of kubectl's plugin and its manifest for krew, kubectl's package manager."""
