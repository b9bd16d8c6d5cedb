package cpython

// ownsThread reports whether the ID that a state has is that of the thread with a thread pointer: the address of the C
// library's struct pthread.
func ownsThread(id, tp uint64) bool { return id == tp }
