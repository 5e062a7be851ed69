"""The handles that users hold."""
