package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// redis is redis-server with a single client, which sends its commands without waiting
// for replies.
var redis = subject{name: "redis", source: "redis", build: buildRedis, writeLoad: writeCommands, size: commands, start: startServer}

func buildRedis(ctx context.Context, source, out string) error {
	err := executeIn(ctx, source, "make", "-C", "src", "redis-server", "MALLOC=libc", "BUILD_TLS=no",
		"OPTIMIZATION=-O2", "CFLAGS=-fPIE "+unsplit, "LDFLAGS=-pie "+relocations)
	if err != nil {
		return err
	}
	return os.Rename(filepath.Join(source, "src", "redis-server"), out)
}

// commands is the number of commands of a load.
const commands = 400_000

// writeCommands writes commands whose replies depend on nothing but the commands, in
// redis's protocol.
func writeCommands(w *bufio.Writer, size int, random func(int) int) {
	const keys = 5000
	write := func(args ...any) {
		fmt.Fprintf(w, "*%d\r\n", len(args))
		for _, a := range args {
			s := fmt.Sprint(a)
			fmt.Fprintf(w, "$%d\r\n%s\r\n", len(s), s)
		}
	}
	key := func(kind string) string { return kind + ":" + strconv.Itoa(random(keys)) }
	few := func(kind string) string { return kind + ":" + strconv.Itoa(random(keys/50)) } // larger values
	write("FLUSHALL")
	for range size {
		switch random(20) {
		case 0, 1, 2:
			write("SET", key("string"), fmt.Sprintf("value %d", random(1<<30)))
		case 3, 4, 5, 6:
			write("GET", key("string"))
		case 7:
			write("INCRBY", key("number"), random(100))
		case 8:
			write("SET", key("short"), random(100), "EX", 1000+random(1000))
		case 9:
			write("RPUSH", few("list"), random(1000), "item")
		case 10:
			write("LPOP", few("list"))
		case 11:
			write("LRANGE", few("list"), 0, random(20))
		case 12:
			write("SADD", few("set"), "member "+strconv.Itoa(random(500)))
		case 13:
			write("SISMEMBER", few("set"), "member "+strconv.Itoa(random(500)))
		case 14:
			write("HSET", few("hash"), "field "+strconv.Itoa(random(300)), random(1000))
		case 15:
			write("HGET", few("hash"), "field "+strconv.Itoa(random(300)))
		case 16:
			write("ZADD", few("sorted"), random(10000), "member "+strconv.Itoa(random(500)))
		case 17:
			low := random(10000)
			write("ZRANGEBYSCORE", few("sorted"), low, low+200, "WITHSCORES")
		case 18:
			write("SETBIT", few("bits"), random(2000), random(2))
		default:
			write("DEL", key("string"), key("short"))
		}
	}
	write("QUIT")
}

// server is a redis-server.
type server struct {
	cmd     *exec.Cmd
	dir     string
	replies hash.Hash
}

func startServer(ctx context.Context, binary string) (_ process, err error) {
	s := &server{replies: sha256.New()}
	if s.dir, err = os.MkdirTemp("", "fulgur-bench-"); err != nil {
		return nil, err
	}
	s.cmd = newCommand(ctx, binary, "--port", "0", "--unixsocket", s.socket(), "--dir", s.dir, "--save", "")
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	for {
		c, err := net.Dial("unix", s.socket())
		if err == nil {
			return s, c.Close()
		}
		if ctx.Err() != nil || syscall.Kill(s.pid(), 0) != nil {
			s.kill()
			return nil, fmt.Errorf("%s: does not start: %w", binary, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *server) socket() string { return filepath.Join(s.dir, "socket") }

func (s *server) pid() int { return s.cmd.Process.Pid }

func (s *server) do(load string) error {
	f, err := os.Open(load)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := net.Dial("unix", s.socket())
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, f)
		sent <- err
	}()
	_, err = io.Copy(s.replies, c) // until the server closes the connection
	closed := c.Close()
	return errors.Join(err, <-sent, closed)
}

func (s *server) finish() (run, error) {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.kill()
		return run{}, err
	}
	r, err := wait(s.cmd, s.replies)
	return r, errors.Join(err, os.RemoveAll(s.dir))
}

func (s *server) kill() {
	kill(s.cmd)
	_ = os.RemoveAll(s.dir) // a few empty files
}
