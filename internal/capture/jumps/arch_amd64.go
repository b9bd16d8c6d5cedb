package jumps

const machineSupported = true
