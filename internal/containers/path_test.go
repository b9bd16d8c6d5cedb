package containers

import (
	"slices"
	"strings"
	"testing"
)

// testID and otherID are IDs of containers.
var testID, otherID = strings.Repeat("0f", 32), strings.Repeat("a1", 32)

func TestCandidates(t *testing.T) {
	for path, want := range map[string][]candidate{
		"/":                           nil,
		"/system.slice/nginx.service": nil,
		"/docker/" + testID:           {{id: testID, path: "/docker/" + testID}},
		"/system.slice/docker-" + testID + ".scope": {{id: testID, path: "/system.slice/docker-" + testID + ".scope"}},
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx_y.slice/cri-containerd-" + testID + ".scope": {
			{id: testID, path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx_y.slice/cri-containerd-" + testID + ".scope"}},
		"/kubepods/besteffort/podx/crio-" + testID:             {{id: testID, path: "/kubepods/besteffort/podx/crio-" + testID}},
		"/machine.slice/libpod-" + testID + ".scope/container": {{id: testID, path: "/machine.slice/libpod-" + testID + ".scope"}},
		"/machine.slice/libpod-conmon-" + testID + ".scope":    nil,
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + testID + ".scope": {
			{id: testID, uid: 1000, path: "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + testID + ".scope"}},
		"/user.slice/user-01.slice/" + testID:               {{id: testID, path: "/user.slice/user-01.slice/" + testID}}, // systemd writes no zero there
		"/docker/" + testID + "/docker/" + otherID:          {{id: testID, path: "/docker/" + testID}, {id: otherID, path: "/docker/" + testID + "/docker/" + otherID}},
		"/default/plain":                                    {{id: "plain", namespace: "default", path: "/default/plain"}},
		"/default/..":                                       nil,
		"/../plain":                                         nil,
		"/a/b/plain":                                        nil,
		"/docker/" + strings.ToUpper(testID):                {{id: strings.ToUpper(testID), namespace: "docker", path: "/docker/" + strings.ToUpper(testID)}},
		"/docker/x" + testID:                                {{id: "x" + testID, namespace: "docker", path: "/docker/x" + testID}},
		strings.Repeat("/a", maxDepth+1):                    nil,
		"/" + strings.Repeat("a", maxPart+1) + "/" + testID: nil,
	} {
		if got := candidates(path); !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}

func TestUnit(t *testing.T) {
	for path, want := range map[string]string{
		"/":                           "",
		"/init.scope":                 "init.scope",
		"/system.slice/nginx.service": "nginx.service",
		"/system.slice/system-getty.slice/getty@tty1.service":                                "getty@tty1.service",
		"/system.slice/nginx.service/workers/ssh.service":                                    "nginx.service", // a name that nginx chose
		"/user.slice/user-1000.slice/session-2.scope":                                        "session-2.scope",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.slice/ssh.service/in": "user@1000.service/ssh.service",
		"/user.slice/user-1000.slice/user@1000.service/init.scope":                           "user@1000.service/init.scope",
		"/user.slice/user-1000.slice/user@1000.service":                                      "user@1000.service",
		"/docker/x/system.slice/nginx.service":                                               "", // from the systemd of a container
		"/system.slice":                                                                      "",
		"/.service":                                                                          "",
		"/a.slice/b.foo":                                                                     "",
	} {
		if got := unit(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestPodUID(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods/burstable/pod1-2/" + testID: "1-2",
		"/kubepods/pod1-2/" + testID:           "1-2",
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice/crio-" + testID + ".scope": "1-2",
		"/kubepods.slice/kubepods-pod1_2.slice/x":                                                              "1-2",
		"/kubepods/burstable":  "",
		"/user.slice/pod1-2/x": "", // the kubelet does not create cgroups there
		"/":                    "",
	} {
		if got := podUID(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// FuzzPath checks that the names found in a path are parts of it, and safe as names of files.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"/docker/" + testID, "/default/plain", "/user.slice/user-7.slice/user@7.service/a.service", "/kubepods/pod1/" + testID} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for _, c := range candidates(path) {
			if !strings.HasPrefix("/"+strings.Trim(path, "/")+"/", c.path+"/") {
				t.Errorf("%q is not a part of %q", c.path, path)
			}
			if !strings.HasSuffix(strings.TrimSuffix(c.path, ".scope"), c.id) && !strings.HasSuffix(c.path, c.id) {
				t.Errorf("%q does not end with %q", c.path, c.id)
			}
			for _, name := range []string{c.id, c.namespace} {
				if strings.ContainsAny(name, "/\x00") || name == ".." || name == "." || strings.HasPrefix(name, "-") {
					t.Errorf("%q: unsafe name %q", path, name)
				}
			}
			if c.uid != 0 && !strings.Contains(path, "user-") {
				t.Errorf("%q: user %d", path, c.uid)
			}
		}
		if u := unit(path); !strings.Contains(path, u[strings.LastIndex(u, "/")+1:]) || strings.Count(u, "/") > 1 {
			t.Errorf("%q: unit %q", path, u)
		}
		if uid := podUID(path); uid != "" && !strings.HasPrefix(strings.Trim(path, "/"), "kubepods") {
			t.Errorf("%q: pod %q", path, uid)
		}
	})
}
