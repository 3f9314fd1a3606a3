"""The audit export."""
