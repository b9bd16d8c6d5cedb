package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// kind is the kind of a message.
type kind byte

const (
	alive kind = 'a' // from both sides
	hello kind = 'h' // the version: this side asks, the other answers

	order     kind = 'c' // from this side: the command
	interrupt kind = 'i' // a Ctrl-C

	folder   kind = 'f' // from the other side: where the files are written
	stdout   kind = 'o'
	stderr   kind = 'e'
	fileName kind = 'n' // a file begins
	fileData kind = 'd'
	fileEnd  kind = 'w' // the file is whole
	exited   kind = 'x' // the exit code, and the end
)

const (
	// maxMessage bounds the body of a message in bytes. Arguments of programs are not much longer.
	maxMessage = 1 << 20
	// chunk is the number of bytes of a file in a message.
	chunk = 32 << 10
)

const (
	// heartbeat is the time between two messages that say that a side is alive.
	heartbeat = 10 * time.Second
	// defaultSilence is how long a side waits for a message. It is long enough for a network that fails for
	// some seconds, and for a suspended shell (Ctrl-Z) that is resumed at once.
	defaultSilence = time.Minute
)

// Order is what the other side runs.
type Order struct {
	// Args is the command line without the program's name.
	Args []string
	// Output and Log are the names of files, "" for none. They replace the paths in Args.
	Output, Log string
	// Pod is the pod to measure, NAMESPACE/POD, unless Args have another target.
	Pod string
	// Columns is the width of the terminal that shows messages, 0 if there is none.
	Columns int
	// Progress asks for a progress line.
	Progress bool
}

// peer is this end of a connection. Each message is its kind, the length of its body as 4 bytes in big
// endian, and the body. Sending is safe for concurrent use.
type peer struct {
	r *bufio.Reader

	mu sync.Mutex
	w  io.Writer
}

func newPeer(r io.Reader, w io.Writer) *peer { return &peer{r: bufio.NewReaderSize(r, chunk), w: w} }

// send sends a message.
func (p *peer) send(k kind, body []byte) error {
	if len(body) > maxMessage {
		return fmt.Errorf("%d bytes are too much for a message", len(body))
	}
	message := append(binary.BigEndian.AppendUint32([]byte{byte(k)}, uint32(len(body))), body...)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(message)
	return err
}

// sendValue sends a message whose body is a value in JSON.
func (p *peer) sendValue(k kind, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return p.send(k, body)
}

// sendText sends text in messages of a kind, as many as it needs.
func (p *peer) sendText(k kind, text []byte) error {
	for len(text) > 0 {
		n := min(len(text), chunk)
		if err := p.send(k, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// errGarbled is the error of data that is no message.
var errGarbled = errors.New("the other side sends what is not fulgur's: does a start-up script there print something?")

// receive waits for a message.
func (p *peer) receive() (k kind, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxMessage {
		return 0, nil, errGarbled
	}
	body = make([]byte, n)
	_, err = io.ReadFull(p.r, body)
	return kind(head[0]), body, err
}

// beat says that this side is alive, until ctx is done or the connection ends.
func (p *peer) beat(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if p.send(alive, nil) != nil {
			return // the receiving side notices it
		}
	}
}

// writer sends what is written to it as messages of a kind.
type writer struct {
	to   *peer
	kind kind
}

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	if err := w.to.sendText(w.kind, text); err != nil {
		return 0, err
	}
	return len(text), nil
}
