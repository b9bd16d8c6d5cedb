package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/atomicfile"
)

// Idle is the first process of fulgur's pod, which keeps the pod until it is deleted. The file at path has
// its ID. If nothing calls [Attend] for some minutes, nobody will: it ends.
func Idle(path string) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGUSR1, unix.SIGTERM, unix.SIGINT)
	if err := writeID(path); err != nil {
		return err
	}
	alone := time.NewTimer(2 * startLimit)
	for {
		select {
		case s := <-signals:
			if s != unix.SIGUSR1 {
				return nil
			}
			alone.Stop()
		case <-alone.C:
			return errors.New("nobody came to measure")
		}
	}
}

// writeID writes the process's ID to a file, which appears whole.
func writeID(path string) error {
	f, err := atomicfile.Create(context.Background(), path) // not a pipe
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(f, os.Getpid()); err != nil {
		return errors.Join(err, f.Abort())
	}
	return f.Commit()
}

// attendLimit is how long the first process of a pod, which has just started, may take to write its ID.
const attendLimit = 10 * time.Second

// Attend says to the process of [Idle] that somebody measures. leave ends it.
func Attend(path string) (leave func(), err error) {
	var text []byte
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if text, err = os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) || time.Since(begin) > attendLimit {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil && pid <= 1 {
		err = strconv.ErrRange
	}
	if err == nil {
		err = unix.Kill(pid, unix.SIGUSR1)
	}
	return func() { _ = unix.Kill(pid, unix.SIGTERM) }, err // it may have ended
}
