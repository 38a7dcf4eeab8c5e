"""The losses of all methods: functions of tensors, or modules if they have memory."""
