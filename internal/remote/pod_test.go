package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/message/usage"
	"fulgur/internal/testenv"
)

// fakeKubectl is a kubectl for a cluster of one pod, web/shop-1. Its files are in $CLUSTER: log has the command
// lines, manifest the pod that was made, and fail the verb that fails. $FULGUR is the test binary.
const fakeKubectl = `#!/bin/sh
printf '%s\n' "$*" >>"$CLUSTER/log"
[ "$1" = --context=test ] && shift
verb=$1
if [ "$(cat "$CLUSTER/fail")" = "$verb" ]; then echo "Error from server: no $verb" >&2; exit 1; fi
case $verb in
get)
	case $* in
	*jsonpath*) echo "Pending  ErrImagePull" ;;
	*) echo "{\"metadata\":{\"namespace\":\"web\"},\"spec\":{\"nodeName\":\"node7\"},\"status\":{\"phase\":\"$PHASE\"}}" ;;
	esac ;;
create) cat >"$CLUSTER/manifest" ;;
wait) [ -z "$WAIT" ] || { echo waiting >&2; exec sleep 1000; } ;;
exec) cat | "$FULGUR" on-host | cat ;;
esac
`

// newCluster makes a cluster of fakeKubectl.
func newCluster(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kubectl"), fakeKubectl)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("CLUSTER", dir)
	t.Setenv("FULGUR", own)
	t.Setenv("PHASE", "Running")
	fail(t, dir, "")
	return dir
}

// fail makes a verb of a cluster fail.
func fail(t *testing.T, cluster, verb string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cluster, "fail"), []byte(verb), 0o600); err != nil {
		t.Fatal(err)
	}
}

// calls returns the verbs with which kubectl was called.
func calls(t *testing.T, cluster string) (verbs []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if words[0] != "--context=test" {
			t.Errorf("got %q, want the user's flag first", line)
			continue
		}
		verbs = append(verbs, words[1])
	}
	return verbs
}

// shop is the pod of the cluster.
func shop(t *testing.T) Pod {
	t.Helper()
	p, err := ParsePod("web/shop-1", Cluster{Flags: []string{"--context=test"}, Image: "example/fulgur:1"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A pod is measured from a pod on its node, which is deleted at the end.
func TestPod(t *testing.T) {
	cluster := newCluster(t)
	o := Options{Output: file(filepath.Join(t.TempDir(), "a.folded"))}
	r := runScript(t, o, `echo x >"$1/$2"; exit 3`, shop(t))
	if r.code != 3 {
		t.Errorf("got %d, %q, want exit code 3", r.code, r.stderr.String())
	}
	wantFile(t, o.Output.Path, "x\n")
	if got, want := strings.Join(calls(t, cluster), " "), "get create wait exec delete"; got != want {
		t.Errorf("got the calls %s, want %s", got, want)
	}
	text, err := os.ReadFile(filepath.Join(cluster, "manifest"))
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		Metadata struct{ Namespace, Name string }
		Spec     struct {
			NodeName              string
			HostPID               bool
			ActiveDeadlineSeconds int
			RestartPolicy         string
			Containers            []struct{ Image string }
		}
	}
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatal(err)
	}
	if made.Metadata.Namespace != "web" || made.Spec.NodeName != "node7" || !made.Spec.HostPID || made.Spec.ActiveDeadlineSeconds <= 0 ||
		made.Spec.RestartPolicy != "Never" || made.Spec.Containers[0].Image != "example/fulgur:1" {
		t.Errorf("got the pod %s", text)
	}
	log, err := os.ReadFile(filepath.Join(cluster, "log"))
	if want := fmt.Sprintf("delete pod %s --namespace=web", made.Metadata.Name); err != nil || !strings.Contains(string(log), want) {
		t.Errorf("got %s, %v, want %s", log, err, want)
	}
}

// However a run ends, its pod is deleted.
func TestPodFails(t *testing.T) {
	for _, c := range []struct{ verb, want, calls string }{
		{"get", "no get", "get"},
		{"create", "must allow privileged pods", "get create delete"},
		{"wait", "ErrImagePull", "get create wait get delete"},
		{"exec", "no exec", "get create wait exec delete"},
		{"delete", "fulgur's pod may still be there: kubectl delete pod --namespace=web fulgur-", "get create wait exec delete"},
	} {
		t.Run(c.verb, func(t *testing.T) {
			cluster := newCluster(t)
			fail(t, cluster, c.verb)
			r := runScript(t, Options{}, "exit 0", shop(t))
			if wantCode := map[bool]int{true: 0, false: 1}[c.verb == "delete"]; r.code != wantCode || !strings.Contains(r.stderr.String(), c.want) {
				t.Errorf("got %d, %q, want %d, %q", r.code, r.stderr.String(), wantCode, c.want)
			}
			if got := strings.Join(calls(t, cluster), " "); got != c.calls {
				t.Errorf("got the calls %s, want %s", got, c.calls)
			}
		})
	}
}

// So is it after Ctrl-C, before and during the measurement.
func TestPodInterrupted(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		cluster := newCluster(t)
		t.Setenv("WAIT", "1")
		r, interrupt, end := start(t, Options{}, "exit 0", shop(t))
		awaitText(t, &r.stderr, "waiting\n")
		interrupt()
		if end(); r.code != 1 || !strings.Contains(r.stderr.String(), errInterrupted.Error()) {
			t.Errorf("got %d, %q, want an interrupted run", r.code, r.stderr.String())
		}
		if got := calls(t, cluster); got[len(got)-1] != "delete" {
			t.Errorf("got the calls %v, want that the pod is deleted", got)
		}
	})
	t.Run("during", func(t *testing.T) {
		cluster := newCluster(t)
		r, interrupt, end := start(t, Options{}, "trap 'echo bye; exit 0' INT; echo ready; while :; do sleep 0.01; done", shop(t))
		awaitText(t, &r.stdout, "ready\n")
		interrupt()
		if end(); r.code != 0 || !strings.Contains(r.stdout.String(), "bye") {
			t.Errorf("got %d, %q, %q, want a run that ended", r.code, r.stdout.String(), r.stderr.String())
		}
		if got := calls(t, cluster); got[len(got)-1] != "delete" {
			t.Errorf("got the calls %v, want that the pod is deleted", got)
		}
	})
}

// A pod that does not run cannot be measured.
func TestPodPending(t *testing.T) {
	cluster := newCluster(t)
	t.Setenv("PHASE", "Pending")
	if r := runScript(t, Options{}, "exit 0", shop(t)); r.code != 1 || !strings.Contains(r.stderr.String(), "pod web/shop-1 does not run: it is Pending") {
		t.Errorf("got %d, %q", r.code, r.stderr.String())
	}
	if got := calls(t, cluster); len(got) != 1 {
		t.Errorf("got the calls %v, want only get", got)
	}
}

func TestParsePod(t *testing.T) {
	for text, want := range map[string]string{"web/shop-1": "web-shop-1", "shop-1": "shop-1", "a/b.c": "a-b.c"} {
		if p, err := ParsePod(text, Cluster{}); err != nil || p.Label() != want {
			t.Errorf("%s: got %q, %v, want %q", text, p.Label(), err, want)
		}
	}
	for _, text := range []string{"", "/", "a/", "/a", "-a", "a/-b", "a/b/c", "A/b", "a b", "a\n", "--all", "a/b-"} {
		if p, err := ParsePod(text, Cluster{}); !errors.Is(err, usage.Err) {
			t.Errorf("%q: got %+v, %v, want a usage error", text, p, err)
		}
	}
}

// The first process of a pod ends when the one that measures says so.
func TestIdle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := testenv.Command(t, own, Subcommand, path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leave, err := Attend(path)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if err := cmd.Wait(); errors.As(err, new(*exec.ExitError)) {
		t.Errorf("got %v, want an end without an error", err)
	}
	for _, text := range []string{"", "x", "1", "-5"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Attend(path); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}
