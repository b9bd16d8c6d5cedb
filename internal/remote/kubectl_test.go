package remote

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"fulgur/internal/testenv"
)

// apiServer is as much of a server of Kubernetes as kubectl needs for the pods of a namespace. It refuses
// to execute programs.
type apiServer struct {
	mu       sync.Mutex
	pods     map[string]json.RawMessage
	requests []string // that change something, or execute
	deleted  []string
}

// ready is the status of each pod.
const ready = `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// The real kubectl makes a pod, waits for it, executes fulgur there, and deletes it also if that fails.
func TestKubectl(t *testing.T) {
	testenv.Tool(t, "kubectl")
	s := &apiServer{pods: map[string]json.RawMessage{
		"shop-1": json.RawMessage(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"web","name":"shop-1"},"spec":{"nodeName":"node7"},"status":` + ready + `}`),
	}}
	server := httptest.NewServer(s)
	defer server.Close()
	t.Setenv("HOME", t.TempDir()) // of kubectl's cache
	t.Setenv("KUBECONFIG", "/dev/null")
	p, err := ParsePod("web/shop-1", Cluster{Flags: []string{"--server=" + server.URL}, Image: "example/fulgur:1"})
	if err != nil {
		t.Fatal(err)
	}
	r := runScript(t, Options{}, "exit 0", p)
	if r.code != 1 || !strings.Contains(r.stderr.String(), "exec is refused") {
		t.Errorf("got %d, %q, want that the server refuses exec", r.code, r.stderr.String())
	}
	missing, err := ParsePod("web/other", Cluster{Flags: []string{"--server=" + server.URL}})
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
