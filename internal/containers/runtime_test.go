package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/files/budget"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// testUID is a user with a home directory.
const testUID = 1234

// machine is a directory that replaces the root of a machine.
type machine struct {
	*places
	t *testing.T
}

// newMachine returns a machine without containers. Its files belong to root.
func newMachine(t *testing.T) machine {
	t.Helper()
	testenv.Root(t)
	return machine{&places{
		root:    t.TempDir(),
		mounts:  func() ([]*procfs.Mount, error) { return nil, nil },
		daemons: func() []daemon { return nil },
		home: func(uid int) string {
			if uid == testUID {
				return "/home/test"
			}
			return ""
		},
	}, t}
}

// mountedAt adds a mount point.
func (m machine) mountedAt(path string) {
	m.t.Helper()
	if !rootControls(m.root) {
		testenv.Skip(m.t, "needs a directory for temporary files that belongs to root, like its ancestors")
	}
	m.mounts = func() ([]*procfs.Mount, error) { return []*procfs.Mount{{Mountpoint: path}}, nil }
}

// write writes a file and returns its path.
func (m machine) write(path, text string) string {
	m.t.Helper()
	full := filepath.Join(m.root, path)
	err := os.MkdirAll(filepath.Dir(full), 0o755)
	if err == nil {
		err = os.WriteFile(full, []byte(text), 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return full
}

// wantOwner checks the owner of a cgroup, as seen by a new finder.
func (m machine) wantOwner(cgroup string, want profile.Owner) {
	m.t.Helper()
	if got := newFinder(m.places).Owner(cgroup); got != want {
		m.t.Errorf("%s:\n got %+v\nwant %+v", cgroup, got, want)
	}
}

// dockerFile returns the text of docker's config.v2.json.
func dockerFile(id, name, labels string) string {
	return fmt.Sprintf(`{"StreamConfig":{},"State":{"Running":true},"ID":%q,"Config":{"Image":"nginx:1.25","Labels":{%s}},"Image":"sha256:00","Name":"/%s"}`, id, labels, name)
}

func TestDocker(t *testing.T) {
	m := newMachine(t)
	m.write("var/lib/docker/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
	web := profile.Owner{ContainerID: testID, Container: "web", Image: "nginx:1.25", Runtime: "docker"}
	m.wantOwner("/docker/"+testID, web)
	m.wantOwner("/docker/"+otherID, profile.Owner{})
	m.wantOwner("/docker/"+testID+"/docker/"+otherID, web) // the inner container is unknown to this machine
	web.Unit = "docker-" + testID + ".scope"
	m.wantOwner("/system.slice/docker-"+testID+".scope", web)
	// Users may choose the names of cgroups in their slice.
	m.wantOwner("/user.slice/user-1234.slice/user@1234.service/docker-"+testID+".scope",
		profile.Owner{Unit: "user@1234.service/docker-" + testID + ".scope"})

	// A user may give any labels to a container.
	m.write("var/lib/docker/containers/"+otherID+"/config.v2.json", dockerFile(otherID, "mine",
		`"io.kubernetes.pod.name":"web-1","io.kubernetes.pod.namespace":"default","io.kubernetes.pod.uid":"1-2","io.kubernetes.container.name":"nginx"`))
	m.wantOwner("/docker/"+otherID, profile.Owner{ContainerID: otherID, Container: "mine", Image: "nginx:1.25", Runtime: "docker"})
	m.write(containerLogs+"/web-1_default_nginx-"+otherID+".log", "")
	m.wantOwner("/kubepods/pod1-2/"+otherID, profile.Owner{
		ContainerID: otherID, Container: "nginx", Image: "nginx:1.25", Runtime: "docker", Pod: "web-1", Namespace: "default", PodUID: "1-2",
	})
}

// TestMovedDocker checks each way to find the data root.
func TestMovedDocker(t *testing.T) {
	for name, arrange := range map[string]func(m machine, data string){
		"daemon.json": func(m machine, data string) {
			m.write("etc/docker/daemon.json", fmt.Sprintf(`{"data-root": %q}`, data))
		},
		"old daemon.json": func(m machine, data string) {
			m.write("etc/docker/daemon.json", fmt.Sprintf(`{"graph": %q}`, data))
		},
		"argument": func(m machine, data string) {
			m.daemons = func() []daemon {
				return []daemon{{"dockerd", []string{"dockerd", "-H", "fd://", "--data-root=" + data}}}
			}
		},
		"argument file": func(m machine, data string) {
			m.write("x.json", fmt.Sprintf(`{"data-root": %q}`, data))
			m.daemons = func() []daemon { return []daemon{{"dockerd", []string{"dockerd", "--config-file", "/x.json"}}} }
		},
		"mount of shm": func(m machine, data string) {
			m.mountedAt(data + "/containers/" + testID + "/mounts/shm")
		},
		"mount of root": func(m machine, data string) {
			m.mountedAt(data + "/overlay2/" + otherID + "/merged")
		},
		"bundle": func(m machine, data string) {
			m.write("run/containerd/"+shims+"/moby/"+testID+"/config.json", fmt.Sprintf(`{"mounts":[{"source":"proc"},{"source":%q}]}`, data+"/containers/"+testID+"/hostname"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.write("data/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
			m.wantOwner("/docker/"+testID, profile.Owner{}) // not found yet
			arrange(m, filepath.Join(m.root, "data"))
			m.at = m.at.Add(-2 * searchEvery)
			m.wantOwner("/docker/"+testID, profile.Owner{ContainerID: testID, Container: "web", Image: "nginx:1.25", Runtime: "docker"})
		})
	}
}

// TestForeignMount checks that mount points below a directory of another user are ignored:
// that user may mount a file system that shows any owner.
func TestForeignMount(t *testing.T) {
	m := newMachine(t)
	config := m.write("home/data/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
	data := filepath.Dir(filepath.Dir(filepath.Dir(config)))
	m.mountedAt(data + "/overlay2/" + otherID + "/merged")
	if err := os.Chown(filepath.Dir(data), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	m.wantOwner("/docker/"+testID, profile.Owner{})
}

// TestUntrusted checks that untrusted files are ignored.
func TestUntrusted(t *testing.T) {
	good := dockerFile(testID, "web", "")
	for name, spoil := range map[string]func(path string) error{
		"other owner": func(path string) error { return os.Chown(path, 1000, 1000) },
		"writable":    func(path string) error { return os.Chmod(path, 0o622) },
		"directory":   func(path string) error { return os.Rename(path, path+"x") },
		"no JSON":     func(path string) error { return os.WriteFile(path, []byte(good[1:]), 0o600) },
		"other ID":    func(path string) error { return os.WriteFile(path, []byte(dockerFile(otherID, "web", "")), 0o600) },
		"too long":    func(path string) error { return os.WriteFile(path, []byte(good+strings.Repeat(" ", maxConfig)), 0o600) },
		"nested too deep": func(path string) error {
			return os.WriteFile(path, []byte(strings.Replace(good, `{"Running":true}`, strings.Repeat("[", maxNesting+1)+strings.Repeat("]", maxNesting+1), 1)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			path := m.write("var/lib/docker/containers/"+testID+"/config.v2.json", good)
			m.wantOwner("/docker/"+testID, profile.Owner{ContainerID: testID, Container: "web", Image: "nginx:1.25", Runtime: "docker"})
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			m.wantOwner("/docker/"+testID, profile.Owner{})
		})
	}
}

func TestContainerd(t *testing.T) {
	m := newMachine(t)
	bundle := func(namespace, id, text string) {
		m.write("run/containerd/"+shims+"/"+namespace+"/"+id+"/config.json", text)
	}
	bundle("k8s.io", testID, `{"ociVersion":"1.1.0","annotations":{"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.container-type":"container",
		"io.kubernetes.cri.image-name":"docker.io/library/nginx:1.25","io.kubernetes.cri.sandbox-id":"x","io.kubernetes.cri.sandbox-name":"web-1",
		"io.kubernetes.cri.sandbox-namespace":"default","io.kubernetes.cri.sandbox-uid":"1-2"},"linux":{"cgroupsPath":"x"}}`)
	pod := profile.Owner{ContainerID: testID, Container: "nginx", Image: "docker.io/library/nginx:1.25", Runtime: "containerd", Pod: "web-1", Namespace: "default", PodUID: "1-2"}
	m.wantOwner("/kubepods/burstable/pod1-2/"+testID, pod)
	bundle("k8s.io", otherID, `{"annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"default"}}`)
	m.wantOwner("/kubepods/burstable/pod1-2/"+otherID, profile.Owner{ContainerID: otherID, Container: sandbox, Runtime: "containerd", Pod: "web-1", Namespace: "default", PodUID: "1-2"})

	bundle("default", "plain", `{"linux":{"cgroupsPath":"/default/plain"}}`)
	m.wantOwner("/default/plain", profile.Owner{ContainerID: "plain", Runtime: "containerd"})
	bundle("other", "plain", `{"linux":{"cgroupsPath":"/elsewhere"}}`)
	m.wantOwner("/other/plain", profile.Owner{})
	bundle("default", strings.Repeat("b", 64), `{"annotations":{"nerdctl/name":"db"}}`)
	m.wantOwner("/system.slice/nerdctl-"+strings.Repeat("b", 64)+".scope", profile.Owner{
		Unit: "nerdctl-" + strings.Repeat("b", 64) + ".scope", ContainerID: strings.Repeat("b", 64), Container: "db", Runtime: "containerd",
	})
	bundle("moby", strings.Repeat("c", 64), `{"annotations":{"nerdctl/name":"x","io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.container-name":"x"}}`)
	m.wantOwner("/docker/"+strings.Repeat("c", 64), profile.Owner{ContainerID: strings.Repeat("c", 64), Runtime: "docker"})
}

// TestMovedContainerd checks each way to find containerd's state.
func TestMovedContainerd(t *testing.T) {
	for name, arrange := range map[string]func(m machine, state string){
		"config": func(m machine, state string) {
			m.write("etc/containerd/config.toml", "version = 2\nroot = \"/x\"\n state = '"+state+"' # moved\n")
		},
		"argument": func(m machine, state string) {
			m.daemons = func() []daemon { return []daemon{{"containerd", []string{"containerd", "--state", state}}} }
		},
		"argument file": func(m machine, state string) {
			m.write("c.toml", "state=\""+state+"\"\n")
			m.daemons = func() []daemon { return []daemon{{"containerd", []string{"containerd", "-c", "/c.toml"}}} }
		},
		"mount": func(m machine, state string) {
			m.mountedAt(state + "/" + shims + "/default/plain/rootfs")
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.write("state/"+shims+"/default/plain/config.json", `{"linux":{"cgroupsPath":"/default/plain"}}`)
			arrange(m, filepath.Join(m.root, "state"))
			m.wantOwner("/default/plain", profile.Owner{ContainerID: "plain", Runtime: "containerd"})
		})
	}
}

// podmanList is the list of a podman container, with %s for its ID.
const podmanList = `[{"id":"0","names":["x"],"metadata":"{"},{"id":"%s","names":["db"],"image":"6d","layer":"e9",
	"metadata":"{\"image-name\":\"docker.io/library/postgres:16\",\"image-id\":\"6d\",\"name\":\"db\",\"created-at\":1}","created":"2026-01-01T00:00:00Z","flags":{}}]`

func TestPodman(t *testing.T) {
	db := profile.Owner{ContainerID: testID, Container: "db", Image: "docker.io/library/postgres:16", Runtime: "podman"}
	for name, arrange := range map[string]func(m machine, list string){
		"default": func(m machine, list string) {
			m.write("var/lib/containers/storage/overlay-containers/containers.json", list)
		},
		"volatile": func(m machine, list string) {
			m.write("run/containers/storage/vfs-containers/volatile-containers.json", list)
		},
		"moved": func(m machine, list string) {
			path := m.write("moved/btrfs-containers/containers.json", list)
			m.write("etc/containers/storage.conf", "[storage]\ngraphroot = \""+filepath.Dir(filepath.Dir(path))+"\"\n")
		},
		"mounted": func(m machine, list string) {
			dir := filepath.Dir(m.write("moved/overlay-containers/containers.json", list))
			m.mountedAt(dir + "/" + testID + "/userdata/shm")
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.wantOwner("/libpod_parent/libpod-"+testID, profile.Owner{})
			arrange(m, fmt.Sprintf(podmanList, testID))
			m.at = m.at.Add(-2 * searchEvery)
			m.wantOwner("/libpod_parent/libpod-"+testID, db)
			m.wantOwner("/libpod_parent/libpod-conmon-"+testID, profile.Owner{})
		})
	}
}

func TestCRIO(t *testing.T) {
	m := newMachine(t)
	dir := "var/lib/containers/storage/overlay-containers/"
	m.write(dir+"containers.json", fmt.Sprintf(`[{"id":%q,"names":["k8s_nginx_web-1_default_1-2_0"],
		"metadata":"{\"pod-name\":\"web-1\",\"pod-id\":\"%s\",\"image-name\":\"\",\"container-name\":\"nginx\",\"metadata-name\":\"nginx\",\"uid\":\"1-2\",\"namespace\":\"default\"}"}]`, testID, otherID))
	want := profile.Owner{
		Unit: "crio-" + testID + ".scope", ContainerID: testID, Container: "nginx", Runtime: "cri-o", Pod: "web-1", Namespace: "default", PodUID: "1-2",
	}
	cgroup := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/crio-" + testID + ".scope"
	m.wantOwner(cgroup, want)
	// The author of a pod may set any other annotation.
	m.write(dir+testID+"/userdata/config.json", `{"annotations":{"io.kubernetes.cri-o.ImageName":"quay.io/nginx:1","io.kubernetes.pod.name":"admin",
		"io.kubernetes.cri-o.Labels":"{\"io.kubernetes.pod.name\":\"web-1\",\"io.kubernetes.pod.namespace\":\"prod\",\"io.kubernetes.pod.uid\":\"1-2\",\"io.kubernetes.container.name\":\"nginx\"}",
		"io.kubernetes.pod.namespace":"kube-system","io.kubernetes.pod.uid":"1-3","io.kubernetes.container.name":"root"}}`)
	want.Image, want.Namespace = "quay.io/nginx:1", "prod"
	m.wantOwner(cgroup, want)
}

func TestKubelet(t *testing.T) {
	m := newMachine(t)
	m.write("run/containerd/"+shims+"/k8s.io/"+testID+"/config.json", `{}`)
	for _, name := range []string{"a_b-" + testID + ".log", "web-1_default_nginx-" + otherID + ".log", "web-1_default_nginx-" + testID + ".log"} {
		m.write(containerLogs+"/"+name, "")
	}
	want := profile.Owner{ContainerID: testID, Runtime: "containerd", Container: "nginx", Pod: "web-1", Namespace: "default", PodUID: "1-2"}
	m.wantOwner("/kubepods/pod1-2/"+testID, want)
	m.wantOwner("/elsewhere/"+testID, profile.Owner{ContainerID: testID, Runtime: "containerd"}) // not the kubelet's
	if err := os.Chmod(filepath.Join(m.root, containerLogs), 0o777); err != nil {
		t.Fatal(err)
	}
	m.wantOwner("/kubepods/pod1-2/"+testID, profile.Owner{ContainerID: testID, Runtime: "containerd", PodUID: "1-2"})
}

// TestRootless checks that a user's containers count only below the slice of that user.
func TestRootless(t *testing.T) {
	m := newMachine(t)
	path := m.write("home/test/.local/share/containers/storage/overlay-containers/containers.json", fmt.Sprintf(podmanList, testID))
	slice := func(uid int) string { return fmt.Sprintf("/user.slice/user-%d.slice/libpod-%s.scope", uid, testID) }
	unit := "libpod-" + testID + ".scope"
	m.wantOwner(slice(testUID), profile.Owner{Unit: unit}) // root's file in the user's home
	if err := os.Chown(path, testUID, testUID); err != nil {
		t.Fatal(err)
	}
	m.wantOwner(slice(testUID), profile.Owner{Unit: unit, ContainerID: testID, Container: "db", Image: "docker.io/library/postgres:16", Runtime: "podman"})
	m.wantOwner(slice(1), profile.Owner{Unit: unit})
	m.wantOwner("/machine.slice/libpod-"+testID+".scope", profile.Owner{Unit: unit})
	// A user names a cgroup in their slice after the slice of another user.
	nested := fmt.Sprintf("/user.slice/user-1.slice/user-%d.slice/libpod-%s.scope", testUID, testID)
	m.wantOwner(nested, profile.Owner{Unit: unit})
}

// TestUserBudget checks that slow files of one user do not stop the reading of other users'
// files.
func TestUserBudget(t *testing.T) {
	m := newMachine(t)
	path := m.write("home/test/.local/share/containers/storage/overlay-containers/containers.json", fmt.Sprintf(podmanList, testID))
	if err := os.Chown(path, testUID, testUID); err != nil {
		t.Fatal(err)
	}
	m.write("var/lib/docker/containers/"+otherID+"/config.v2.json", dockerFile(otherID, "web", ""))
	f := newFinder(m.places)
	slice := "/user.slice/user-" + strconv.Itoa(testUID) + ".slice/libpod-" + testID + ".scope"
	f.Owner("/user.slice/user-" + strconv.Itoa(testUID) + ".slice/libpod-" + otherID + ".scope")
	f.budgets[testUID].Spend(time.Hour)
	if got := f.Owner(slice).Container; got != "" {
		t.Errorf("got container %q, want none until later", got)
	}
	if got := f.Owner("/docker/" + otherID).Container; got != "web" {
		t.Errorf("got container %q of another user, want web", got)
	}
	f.budgets[testUID] = budget.New(userBudget, budgetShare)
	if got := f.Owner(slice).Container; got != "db" {
		t.Errorf("got container %q later, want db", got)
	}
}

// TestRootControls checks that nothing below a user's directory is examined.
func TestRootControls(t *testing.T) {
	uids := map[string]uint32{"/home": 0, "/home/user": 1000}
	var asked []string
	stat := func(path string, _ capability.Set) (os.FileInfo, error) {
		asked = append(asked, path)
		return directoryOf(uids[path]), nil
	}
	if rootControlsBy("/home/user/fuse/docker", stat) || !slices.Equal(asked, []string{"/", "/home", "/home/user"}) {
		t.Errorf("looked at %q, want nothing below /home/user", asked)
	}
	if !rootControlsBy("/var/lib/docker", stat) {
		t.Error("a directory of root is not accepted")
	}
}

// directoryOf is the state of a directory of a user.
type directoryOf uint32

func (directoryOf) Name() string       { return "" }
func (directoryOf) Size() int64        { return 0 }
func (directoryOf) Mode() os.FileMode  { return os.ModeDir | 0o755 }
func (directoryOf) ModTime() time.Time { return time.Time{} }
func (directoryOf) IsDir() bool        { return true }
func (d directoryOf) Sys() any         { return &syscall.Stat_t{Uid: uint32(d), Mode: 0o755} }

// TestDaemonSearch checks that each process is examined twice, and daemons that have ended
// are dropped.
func TestDaemonSearch(t *testing.T) {
	looked := map[int]int{}
	isDaemon := map[int]bool{7: true}
	s := newDaemonSearch()
	s.look = func(pid int) (daemon, bool) {
		looked[pid]++
		return daemon{name: strconv.Itoa(pid)}, isDaemon[pid]
	}
	want := func(pids []int, names ...string) {
		t.Helper()
		var got []string
		for _, d := range s.among(pids) {
			got = append(got, d.name)
		}
		if !slices.Equal(got, names) {
			t.Errorf("got daemons %q among %d, want %q", got, pids, names)
		}
	}
	want([]int{1, 7, 8}, "7")
	isDaemon[8] = true // exec
	for range 5 {
		want([]int{1, 7, 8}, "7", "8")
	}
	for pid, n := range looked {
		if n != maxLooks {
			t.Errorf("looked %d times at process %d, want %d", n, pid, maxLooks)
		}
	}
	want([]int{1, 8}, "8")
	want([]int{1, 7}, "7") // a new one
}

func TestParseLogName(t *testing.T) {
	for name, want := range map[string]string{
		"web-1_default_nginx-" + testID + ".log":  "web-1 default nginx",
		"web-1_default_nginx-" + otherID + ".log": "",
		"web-1_default-" + testID + ".log":        "",
		"_default_nginx-" + testID + ".log":       "",
		"a_b_c_d-" + testID + ".log":              "",
		"":                                        "",
	} {
		pod, namespace, container, _ := parseLogName(name, testID)
		if got := strings.TrimSpace(pod + " " + namespace + " " + container); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// FuzzParseLogName checks that the parts make up the name of the file.
func FuzzParseLogName(f *testing.F) {
	f.Add("web-1_default_nginx-"+testID+".log", testID)
	f.Fuzz(func(t *testing.T, name, id string) {
		pod, namespace, container, ok := parseLogName(name, id)
		if ok && pod+"_"+namespace+"_"+container+"-"+id+".log" != name {
			t.Errorf("%q: got %q, %q, %q", name, pod, namespace, container)
		}
	})
}

// FuzzFiles parses arbitrary text as each of the files. No name is longer than the text.
func FuzzFiles(f *testing.F) {
	for _, text := range []string{dockerFile(testID, "web", `"a":"b"`), fmt.Sprintf(podmanList, testID), `{"annotations":{"nerdctl/name":"x"}}`, "state = \"/a\"\ngraphroot='/b'"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var owners []profile.Owner
		var config dockerConfig
		if decodeJSON([]byte(text), &config) == nil {
			owners = append(owners, config.owner())
		}
		var spec specification
		if decodeJSON([]byte(text), &spec) == nil {
			owners = append(owners, spec.owner("k8s.io"))
			if root := spec.dockerRoot("x"); root != "" && !filepath.IsAbs(root) {
				t.Errorf("data root %q", root)
			}
		}
		var list []storedContainer
		if decodeJSON([]byte(text), &list) == nil {
			for _, stored := range list {
				owners = append(owners, stored.owner())
			}
		}
		for _, o := range owners {
			for _, name := range []string{o.Container, o.Image, o.Pod, o.Namespace, o.PodUID} {
				if len(name) > 3*len(text)+len(sandbox) { // invalid UTF-8 becomes three bytes
					t.Errorf("name of %d bytes in a text of %d", len(name), len(text))
				}
			}
		}
		for _, path := range append(parseOptions([]byte(text), storageOption), parseOptions([]byte(text), stateOption)...) {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				t.Errorf("path %q", path)
			}
		}
	})
}

func TestCheckNesting(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat("]}", n/2) }
	for text, want := range map[string]bool{
		deep(maxNesting): true, deep(maxNesting + 2): false,
		`"` + strings.Repeat("[", 100) + `"`: true, `"\"` + strings.Repeat("[", 100) + `"`: true,
		`"\\"` + strings.Repeat("[", 100): false,
	} {
		if got := checkNesting([]byte(text)) == nil; got != want {
			t.Errorf("%.20s…: got %v, want %v", text, got, want)
		}
	}
}
