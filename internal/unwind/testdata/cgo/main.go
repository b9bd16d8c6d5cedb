// Command cgo calls C, which calls Go, on several threads.
package main

/*
#include <stdlib.h>

extern int compareGo(void *a, void *b);

static int compare(const void *a, const void *b)
{
	return compareGo((void *)a, (void *)b);
}

static void sort(int *v, int n)
{
	qsort(v, n, sizeof(*v), compare);
}

static unsigned spin(unsigned n)
{
	for (int i = 0; i < 100000; i++)
		n = n * 1664525 + 1013904223;
	return n;
}
*/
import "C"

import "unsafe"

var sink int

//export compareGo
func compareGo(a, b unsafe.Pointer) C.int {
	sink += digits(int(*(*C.int)(a)))
	return *(*C.int)(a) - *(*C.int)(b)
}

func digits(n int) int {
	if n < 10 {
		return 1
	}
	return 1 + digits(n/10)
}

func main() {
	go func() {
		for n := C.uint(0); ; {
			n = C.spin(n)
		}
	}()
	for {
		v := make([]C.int, 500)
		for i := range v {
			v[i] = C.int(i * 7919 % 997)
		}
		C.sort(&v[0], C.int(len(v)))
	}
}
