package containers

import (
	"errors"
	"os"
	"strings"
	"testing"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
)

// TestFind searches a directory that looks like a hierarchy.
func TestFind(t *testing.T) {
	m := newMachine(t)
	db, web, web2, other := testID, otherID, strings.Repeat("b2", 32), strings.Repeat("b3", 32)
	for id, name := range map[string]string{db: "db", web: "web", other: "other"} {
		m.write("var/lib/docker/containers/"+id+"/config.v2.json", dockerFile(id, name, ""))
	}
	m.write("run/containerd/"+shims+"/k8s.io/"+web2+"/config.json",
		`{"annotations":{"io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"default","io.kubernetes.cri.container-name":"web"}}`)
	tree := t.TempDir()
	pod := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
	for _, path := range []string{
		"/docker/" + db + "/inner", "/docker/" + web, "/system.slice/docker-" + other + ".scope",
		"/system.slice/nginx.service/worker", "/system.slice/ssh.service", "/system.slice/ssh.socket",
		"/user.slice/user-7.slice/user@7.service/app.slice/nginx.service",
		pod + "/cri-containerd-" + web2 + ".scope",
	} {
		if err := os.MkdirAll(tree+path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		by         profile.Grouping
		name, want string // a directory, or part of the error
		isError    bool
	}{
		{profile.GroupContainer, "db", "/docker/" + db, false},
		{profile.GroupContainer, db, "/docker/" + db, false},
		{profile.GroupContainer, db[:12], "/docker/" + db, false},
		{profile.GroupContainer, db[:3], `not found: running, among others: `, true},
		{profile.GroupContainer, "b2b2", pod + "/cri-containerd-" + web2 + ".scope", false},
		{profile.GroupContainer, "web", "/docker/" + web, false}, // an exact match
		{profile.GroupContainer, "default/web-1/web", pod + "/cri-containerd-" + web2 + ".scope", false},
		{profile.GroupContainer, "othr", "running, among others: other, ", true},
		{profile.GroupUnit, "nginx.service", "/system.slice/nginx.service", false},
		{profile.GroupUnit, "nginx", "/system.slice/nginx.service", false},
		{profile.GroupUnit, "user@7.service/nginx", "/user.slice/user-7.slice/user@7.service/app.slice/nginx.service", false},
		{profile.GroupUnit, "ssh.socket", "/system.slice/ssh.socket", false},
		{profile.GroupUnit, "ngin", "nginx.service", true},
		{profile.GroupPod, "default/web-1", pod, false},
		{profile.GroupPod, "web-1", "default/web-1", true},
		{profile.GroupContainer, "", "not found", true},
	} {
		g, err := find(newFinder(m.places), []hierarchy{{tree, true}}, test.by, test.name)
		switch {
		case test.isError && (!errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s %q: got %v, %v, want an error with %q", test.by, test.name, g, err, test.want)
		case !test.isError && (err != nil || g.Path != tree+test.want || !g.Unified):
			t.Errorf("%s %q: got %+v, %v, want %s", test.by, test.name, g, err, tree+test.want)
		}
	}

	// Two containers of the same name.
	if err := os.MkdirAll(tree+"/docker/"+strings.Repeat("c", 64), 0o755); err != nil {
		t.Fatal(err)
	}
	m.write("var/lib/docker/containers/"+strings.Repeat("c", 64)+"/config.v2.json", dockerFile(strings.Repeat("c", 64), "db", ""))
	if g, err := find(newFinder(m.places), []hierarchy{{tree, true}}, profile.GroupContainer, "db"); err == nil || !strings.Contains(err.Error(), "2 containers match") {
		t.Errorf("got %v, %v, want an error", g, err)
	}
}

func TestFindNothing(t *testing.T) {
	m := newMachine(t)
	_, err := find(newFinder(m.places), []hierarchy{{t.TempDir(), true}}, profile.GroupPod, "a/b")
	if want := `pod "a/b" not found: no pod is running`; err == nil || err.Error() != want || !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestHierarchies(t *testing.T) {
	mounted := procfs.ParseMounts([]byte(`30 1 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
31 1 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
32 1 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 1 0:28 /a /part rw - cgroup2 cgroup2 rw
34 1 0:29 / /tmp rw - tmpfs tmpfs rw
`))
	want := []hierarchy{{"/sys/fs/cgroup/unified", true}, {"/sys/fs/cgroup/systemd", false}, {"/sys/fs/cgroup/cpu", false}}
	got := hierarchies(mounted)
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"web", "wbe", 2}, {"kitten", "sitting", 3}, {strings.Repeat("a", 1000), "", maxCompared}} {
		if got := distance(test.a, test.b); got != test.want || distance(test.b, test.a) != test.want {
			t.Errorf("%q, %q: got %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestPodDirectory(t *testing.T) {
	own := "/kubepods/burstable/pod1-2/" + testID
	if got, want := podDirectory("/x"+own, own), "/x/kubepods/burstable/pod1-2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	own = "/elsewhere/" + testID
	if got := podDirectory("/x"+own, own); got != "/x"+own {
		t.Errorf("got %s, want the container's own", got)
	}
}
