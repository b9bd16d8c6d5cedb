// Package kubernetes checks the manifests for Kubernetes.
package kubernetes

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

// decode decodes the objects of a manifest. Unknown and repeated fields are errors.
func decode(t *testing.T, path string) (all []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, core.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for _, document := range bytes.Split(read(t, path), []byte("\n---\n")) {
		object, _, err := serializer.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, object)
	}
	return all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestManifest decodes the manifest, and compares it with the rest of fulgur: the flags in its
// configuration exist, and the capabilities are those of the systemd unit.
func TestManifest(t *testing.T) {
	all := decode(t, "fulgur-agent.yaml")
	if len(all) != 3 {
		t.Fatalf("got %d objects, want 3", len(all))
	}
	namespace, config, set := all[0].(*core.Namespace), all[1].(*core.ConfigMap), all[2].(*apps.DaemonSet)
	if config.Namespace != namespace.Name || set.Namespace != namespace.Name {
		t.Errorf("got namespaces %q and %q, want %q", config.Namespace, set.Namespace, namespace.Name)
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[key] != value {
			t.Errorf("the selector wants %s=%s, the pods have %v", key, value, set.Spec.Template.Labels)
		}
	}
	pod := set.Spec.Template.Spec
	if !pod.HostPID || len(pod.Containers) != 1 {
		t.Fatalf("got host PIDs %v, %d containers; want true and 1", pod.HostPID, len(pod.Containers))
	}
	agent := pod.Containers[0]

	var flags map[string]any
	text := []byte(config.Data["agent.yaml"])
	if err := yaml.UnmarshalStrict(text, &flags); err != nil {
		t.Fatal(err)
	}
	help := string(read(t, "../../cmd/fulgur/testdata/help-agent.txt"))
	for name := range flags {
		if !strings.Contains(help, "--"+name+"=") {
			t.Errorf("fulgur agent has no flag --%s", name)
		}
	}
	if len(flags) == 0 {
		t.Error("got a configuration without flags")
	}

	unit := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindSubmatch(read(t, "../systemd/fulgur-agent.service"))
	if len(unit) != 2 {
		t.Fatal("the systemd unit has no capabilities")
	}
	// Few nodes run Debian's kernels, so the manifest only names the capability that these need.
	want := slices.DeleteFunc(strings.Fields(strings.ReplaceAll(string(unit[1]), "CAP_", "")), func(c string) bool { return c == "SYS_ADMIN" })
	var got []string
	for _, c := range agent.SecurityContext.Capabilities.Add {
		got = append(got, string(c))
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got capabilities %q, want the systemd unit's except SYS_ADMIN, %q", got, want)
	}

	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range agent.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: no volume %q", m.MountPath, m.Name)
		}
		delete(volumes, m.Name)
	}
	if len(volumes) > 0 {
		t.Errorf("volumes that are not mounted: %v", volumes)
	}
	for _, probe := range []*core.Probe{agent.ReadinessProbe, agent.LivenessProbe} {
		if port := probe.HTTPGet.Port.StrVal; port != agent.Ports[0].Name {
			t.Errorf("a probe uses port %q, want %q", port, agent.Ports[0].Name)
		}
	}
}
