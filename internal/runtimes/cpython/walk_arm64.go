package cpython

// ownsThread reports whether the ID that a state has is that of the thread with a thread pointer: the address of the C
// library's struct pthread, which is before the thread pointer.
func ownsThread(id, tp uint64) bool { return tp-id <= pthread }
