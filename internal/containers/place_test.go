package containers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/linux/monotonic"
)

// wantLabels checks the labels of the container of a cgroup, as seen by a new finder.
func (m machine) wantLabels(cgroup string, want map[string]string) {
	m.t.Helper()
	if got := newFinder(m.places).Place(cgroup).Labels; !maps.Equal(got, want) {
		m.t.Errorf("%s: got labels %q, want %q", cgroup, got, want)
	}
}

// Labels of containers, and those of their pods where the runtime's files have them.
func TestLabels(t *testing.T) {
	m := newMachine(t)
	docker := "var/lib/docker/containers/"
	m.write(docker+testID+"/config.v2.json", dockerFile(testID, "web", `"app":"api","a":"1","io.kubernetes.sandbox.id":"`+otherID+`"`))
	m.wantLabels("/docker/"+testID, map[string]string{"app": "api", "a": "1", labelSandbox: otherID})
	m.write(docker+otherID+"/config.v2.json", dockerFile(otherID, "pod", `"app":"pod","b":"2"`))
	m.wantLabels("/docker/"+testID, map[string]string{"app": "api", "a": "1", "b": "2", labelSandbox: otherID})
	m.wantLabels("/docker/"+otherID, map[string]string{"app": "pod", "b": "2"})
	m.wantLabels("/system.slice/ssh.service", nil)

	m = newMachine(t)
	m.write(docker+testID+"/config.v2.json", dockerFile(testID, "web", `"app":"api","io.kubernetes.sandbox.id":"../`+otherID+`"`))
	m.write(docker+otherID+"/config.v2.json", dockerFile(testID, "", `"b":"2"`))
	m.wantLabels("/docker/"+testID, map[string]string{"app": "api", labelSandbox: "../" + otherID})
	m.write(docker+testID+"/config.v2.json", dockerFile(testID, "web", `"app":"`+strings.Repeat("x", maxLabelBytes)+`"`))
	m.wantLabels("/docker/"+testID, nil)

	m.write("run/containerd/"+shims+"/k8s.io/"+otherID+"/config.json", `{"annotations":{"io.kubernetes.cri.sandbox-name":"web-1","team":"a"}}`)
	m.wantLabels("/kubepods/pod1-2/"+otherID, map[string]string{"io.kubernetes.cri.sandbox-name": "web-1", "team": "a"})

	m = newMachine(t)
	dir := "var/lib/containers/storage/overlay-containers/"
	m.write(dir+"containers.json", fmt.Sprintf(`[{"id":%q,"names":["web"],"metadata":"{\"pod-name\":\"web-1\",\"pod-id\":\"%s\"}"}]`, testID, otherID))
	m.write(dir+testID+"/userdata/config.json", `{"annotations":{"io.kubernetes.cri-o.SandboxID":"`+otherID+`","note":"by its author","io.kubernetes.cri-o.Labels":"{\"io.kubernetes.pod.name\":\"web-1\"}"}}`)
	m.write(dir+otherID+"/userdata/config.json", `{"annotations":{"io.kubernetes.cri-o.Labels":"{\"app\":\"api\"}"}}`)
	m.wantLabels("/kubepods/pod1-2/crio-"+testID, map[string]string{"io.kubernetes.pod.name": "web-1", "app": "api"})

	m = newMachine(t)
	m.write(dir+"containers.json", fmt.Sprintf(podmanList, testID))
	m.write(dir+testID+"/userdata/config.json", `{"annotations":{"team":"db"}}`)
	m.wantLabels("/libpod_parent/libpod-"+testID, map[string]string{"team": "db"})
}

// The place of a process has its cgroups. While no runtime knows a container of which there seems to be one,
// it is doubtful.
func TestPlace(t *testing.T) {
	m := newMachine(t)
	tracker := newTestTracker(t, m, false)
	path := "/docker/" + testID
	place := func(id uint64) Place { return tracker.Of(noProcess, anyEpoch, id, monotonic.Now()).Place() }
	if tracker.Created(1, path) == nil || tracker.Created(2, "/system.slice/ssh.service") == nil {
		t.Fatal("got no memberships")
	}
	if p := place(1); !p.Doubtful || !slices.Equal(p.Paths, []string{path}) || p.ContainerID != "" {
		t.Errorf("before the runtime wrote its files: got %+v", p)
	}
	if p := place(2); p.Doubtful || p.Unit != "ssh.service" {
		t.Errorf("a service: got %+v", p)
	}
	m.write("var/lib/docker/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", `"app":"api"`))
	tracker.finder.mu.Lock()
	clear(tracker.finder.known) // as after the time between two lookups
	tracker.finder.mu.Unlock()
	if p := place(1); p.Doubtful || p.Container != "web" || p.Labels["app"] != "api" {
		t.Errorf("after that: got %+v", p)
	}
	unclear := tracker.Created(3, "/docker/"+otherID)
	unclear.Place()
	unclear.since = unclear.since.Add(-2 * maxDoubt)
	if p := unclear.Place(); p.Doubtful || p.ContainerID != "" {
		t.Errorf("a while later: got %+v", p)
	}
	if p := (*Membership)(nil).Place(); !p.Unknown || p.Doubtful {
		t.Errorf("an unknown process: got %+v", p)
	}
}
