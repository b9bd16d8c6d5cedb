package jumps

// The conditions of its jumps are in the instructions, which the kernel side does not
// decode.
const machineSupported = false
