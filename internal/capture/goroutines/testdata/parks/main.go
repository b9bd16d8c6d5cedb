// Command parks waits for a goroutine.
package main

func main() {
	c := make(chan int)
	go func() { c <- 1 }()
	<-c
}
