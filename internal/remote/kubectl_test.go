package remote

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fulgur/internal/testenv"
)

// apiServer is as much of a server of Kubernetes as kubectl needs for the pods of a namespace. It executes the
// test binary instead of fulgur, if it may.
type apiServer struct {
	executes string // the path of the program; "" to refuse
	mu       sync.Mutex
	pods     map[string]json.RawMessage
	requests []string // that change something, or execute
	deleted  []string
}

// ready is the status of each pod.
const ready = `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/exec") && s.executes != "" && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		execute(w, r, s.executes)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, text string) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
	const pods = "/api/v1/namespaces/web/pods"
	name, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, pods), "/"), "/")
	switch {
	case r.URL.Path == "/api":
		answer(http.StatusOK, `{"kind":"APIVersions","versions":["v1"]}`)
	case r.URL.Path == "/apis":
		answer(http.StatusOK, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case r.URL.Path == "/api/v1":
		answer(http.StatusOK, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["create","delete","get","list","watch"]}]}`)
	case !strings.HasPrefix(r.URL.Path, pods):
		answer(http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404}`)
	case verb == "exec":
		s.requests = append(s.requests, "exec "+r.URL.RawQuery)
		answer(http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"exec is refused","code":403}`)
	case r.Method == http.MethodPost:
		var pod map[string]any
		if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
			answer(http.StatusBadRequest, err.Error())
			return
		}
		name := pod["metadata"].(map[string]any)["name"].(string)
		pod["status"] = json.RawMessage(ready)
		text, err := json.Marshal(pod)
		if err != nil {
			panic(err)
		}
		s.pods[name] = text
		s.requests = append(s.requests, "create")
		answer(http.StatusCreated, string(text))
	case r.Method == http.MethodDelete:
		delete(s.pods, name)
		s.deleted = append(s.deleted, name)
		s.requests = append(s.requests, "delete")
		answer(http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case name == "":
		name, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		answer(http.StatusOK, fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, s.pods[name]))
	case s.pods[name] == nil:
		answer(http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"no such pod","code":404}`)
	default:
		answer(http.StatusOK, string(s.pods[name]))
	}
}

// The channels of Kubernetes' protocol for exec in WebSockets, version 5.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelClose = 255
)

// execute runs a program for a client of exec.
func execute(w http.ResponseWriter, r *http.Request, path string) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	var mu sync.Mutex
	send := func(opcode byte, payload []byte) error {
		mu.Lock()
		defer mu.Unlock()
		head := []byte{0x80 | opcode, 126}
		_, err := conn.Write(append(binary.BigEndian.AppendUint16(head, uint16(len(payload))), payload...))
		return err
	}
	cmd := exec.Command(path, Subcommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		panic(err)
	}
	to := func(channel byte) io.Writer {
		return writeFunc(func(text []byte) (int, error) {
			for part := range slices.Chunk(text, 4096) {
				if err := send(2, append([]byte{channel}, part...)); err != nil {
					return 0, err
				}
			}
			return len(text), nil
		})
	}
	cmd.Stdout, cmd.Stderr = to(channelStdout), to(channelStderr)
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	go func() {
		defer in.Close()
		for {
			opcode, payload, err := receiveFrame(buffered.Reader)
			switch {
			case err != nil || opcode == 8:
				return
			case opcode == 9:
				_ = send(10, payload)
			case opcode == 2 && len(payload) == 2 && payload[0] == channelClose && payload[1] == channelStdin:
				return
			case opcode == 2 && len(payload) > 0 && payload[0] == channelStdin:
				_, _ = in.Write(payload[1:])
			}
		}
	}()
	_ = cmd.Wait()
	_ = send(2, append([]byte{channelError}, `{"kind":"Status","apiVersion":"v1","status":"Success"}`...))
	_ = send(8, []byte{3, 232}) // a normal end
}

// writeFunc is a writer.
type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(text []byte) (int, error) { return f(text) }

// receiveFrame receives a frame of a client, see RFC 6455.
func receiveFrame(r io.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] & 0x7f)
	if extended := map[uint64]int{126: 2, 127: 8}[size]; extended > 0 {
		var bytes [8]byte
		if _, err := io.ReadFull(r, bytes[8-extended:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(bytes[:])
	}
	payload = make([]byte, 4+size)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	mask, payload := payload[:4], payload[4:]
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0] & 0xf, payload, nil
}

// startServer starts a server with the pod web/shop-1, for kubectl.
func startServer(t *testing.T) (s *apiServer, cluster Cluster) {
	t.Helper()
	testenv.Tool(t, "kubectl")
	s = &apiServer{pods: map[string]json.RawMessage{
		"shop-1": json.RawMessage(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"web","name":"shop-1"},"spec":{"nodeName":"node7"},"status":` + ready + `}`),
	}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Setenv("HOME", t.TempDir()) // of kubectl's cache
	t.Setenv("KUBECONFIG", "/dev/null")
	return s, Cluster{Flags: []string{"--server=" + server.URL}, Image: "example/fulgur:1"}
}

// Everything that two sides say passes through the real kubectl, if it is one that uses WebSockets.
func TestKubectlExec(t *testing.T) {
	s, cluster := startServer(t)
	version, err := exec.Command("kubectl", "version", "--client", "--output=json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ ClientVersion struct{ Major, Minor string } }
	if err := json.Unmarshal(version, &v); err != nil {
		t.Fatal(err)
	}
	if minor, err := strconv.Atoi(strings.TrimRight(v.ClientVersion.Minor, "+")); err != nil || v.ClientVersion.Major == "1" && minor < 31 {
		testenv.Unsupported(t, "needs kubectl 1.31, which uses WebSockets")
	}
	if s.executes, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	p, err := ParsePod("web/shop-1", cluster)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Output: file(filepath.Join(t.TempDir(), "a.folded"))}
	r, interrupt, end := start(t, o, `trap 'head -c 300000 /dev/zero >"$1/$2"; exit 3' INT; printf 'ready\0\377\n'; while :; do sleep 0.01; done`, p)
	awaitText(t, &r.stdout, "ready\x00\xff\n")
	interrupt()
	if end(); r.code != 3 {
		t.Errorf("got %d, %q, want exit code 3", r.code, r.stderr.String())
	}
	wantFile(t, o.Output.Path, strings.Repeat("\x00", 300000))
	if s.mu.Lock(); len(s.deleted) != 1 {
		t.Errorf("got %v deleted, want fulgur's pod", s.deleted)
	}
	s.mu.Unlock()
}

// The real kubectl makes a pod, waits for it, executes fulgur there, and deletes it also if that fails.
func TestKubectl(t *testing.T) {
	s, cluster := startServer(t)
	p, err := ParsePod("web/shop-1", cluster)
	if err != nil {
		t.Fatal(err)
	}
	r := runScript(t, Options{}, "exit 0", p)
	if r.code != 1 || !strings.Contains(r.stderr.String(), "exec is refused") {
		t.Errorf("got %d, %q, want that the server refuses exec", r.code, r.stderr.String())
	}
	missing, err := ParsePod("web/other", cluster)
	if err != nil {
		t.Fatal(err)
	}
	if r := runScript(t, Options{}, "exit 0", missing); r.code != 1 || !strings.Contains(r.stderr.String(), "kubectl get: exit status 1") {
		t.Errorf("got %d, %q, want that there is no such pod", r.code, r.stderr.String())
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	// kubectl may ask in several protocols.
	requests := slices.Compact(s.requests)
	want := []string{"create", "exec command=%2Fusr%2Fbin%2Ffulgur&command=on-host&command=--attend%3D%2Fvar%2Ftmp%2Ffulgur.pid&container=fulgur&stderr=true&stdin=true&stdout=true", "delete"}
	if !slices.Equal(requests, want) {
		t.Errorf("got the requests %q, want %q", requests, want)
	}
	if len(s.pods) != 1 || len(s.deleted) != 1 || !strings.HasPrefix(s.deleted[0], "fulgur-") {
		t.Errorf("got the pods %v, and %v deleted", s.pods, s.deleted)
	}
}
