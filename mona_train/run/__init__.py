"""What a run leaves behind and shows while it goes on: checkpoints, metrics, logs, the live display.

Nothing here knows a method or a network; a kill at any moment leaves files that the next start can use.
"""
