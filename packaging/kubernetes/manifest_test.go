// Package kubernetes checks the manifests for Kubernetes.
package kubernetes

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/google/go-cmp/cmp"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the manifest")

// render returns what the chart makes of its values, some of which are replaced. It does what helm template
// does, with helm's functions that the chart uses.
func render(t *testing.T, replaced map[string]any) []byte {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict(read(t, "chart/values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	for name := range replaced {
		if _, ok := values[name]; !ok {
			t.Fatalf("the chart has no value %s", name)
		}
	}
	maps.Copy(values, replaced)
	parsed, err := template.New("").Option("missingkey=error").Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	}).Parse(string(read(t, "chart/templates/fulgur-agent.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, map[string]any{"Values": values}); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// The manifest is what the chart makes of its own values.
func TestChart(t *testing.T) {
	got := render(t, nil)
	if *update {
		if err := os.WriteFile("fulgur-agent.yaml", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(string(read(t, "fulgur-agent.yaml")), string(got)); d != "" {
		t.Errorf("-update rewrites the manifest (-want +got):\n%s", d)
	}
	for _, file := range []string{"chart/Chart.yaml", "chart/values.yaml"} {
		var fields map[string]any
		if err := yaml.UnmarshalStrict(read(t, file), &fields); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Values reach the objects.
func TestChartValues(t *testing.T) {
	all := decode(t, render(t, map[string]any{
		"namespace": "other", "createNamespace": false, "image": "registry.example/fulgur:1", "endpoint": "https://collector:4318",
		"imagePullSecrets": []any{map[string]any{"name": "registry"}}, "headersSecret": "key",
		"agent": map[string]any{"interval": 60, "offcpu": true, "bolt": "/a: b"}, "resourceAttributes": map[string]any{"a": "b"},
		"nodeSelector": map[string]any{"pool": "x"}, "tolerations": []any{}, "moreCapabilities": []any{"SYS_ADMIN"},
		"runtimeFolders": []any{map[string]any{"name": "docker", "path": "/var/lib/docker/containers"}},
	}))
	if len(all) != 2 {
		t.Fatalf("got %d objects, want 2", len(all))
	}
	config, set := all[0].(*core.ConfigMap), all[1].(*apps.DaemonSet)
	if want := "bolt: \"/a: b\"\ninterval: 60\noffcpu: true"; strings.TrimSpace(config.Data["agent.yaml"]) != want || config.Namespace != "other" || set.Namespace != "other" {
		t.Errorf("got namespaces %q and %q, configuration %q, want %q", config.Namespace, set.Namespace, config.Data["agent.yaml"], want)
	}
	pod := set.Spec.Template.Spec
	agent := pod.Containers[0]
	environment := map[string]string{}
	for _, e := range agent.Env {
		environment[e.Name] = e.Value
	}
	if agent.Image != "registry.example/fulgur:1" || environment["OTEL_EXPORTER_OTLP_ENDPOINT"] != "https://collector:4318" ||
		!strings.HasSuffix(environment["OTEL_RESOURCE_ATTRIBUTES"], ",a=b") {
		t.Errorf("got image %q, environment %v", agent.Image, environment)
	}
	if pod.NodeSelector["pool"] != "x" || len(pod.NodeSelector) != 1 || len(pod.Tolerations) != 0 || len(pod.ImagePullSecrets) != 1 {
		t.Errorf("got nodes %v, tolerations %v, secrets %v", pod.NodeSelector, pod.Tolerations, pod.ImagePullSecrets)
	}
	if !slices.Contains(agent.SecurityContext.Capabilities.Add, "SYS_ADMIN") || len(agent.SecurityContext.Capabilities.Add) != 7 {
		t.Errorf("got capabilities %v", agent.SecurityContext.Capabilities.Add)
	}
	checkVolumes(t, pod, agent)
	if want := []string{"--headers-file", "/etc/fulgur/headers"}; !slices.Equal(agent.Args[3:], want) {
		t.Errorf("got arguments %q, want %q at the end", agent.Args, want)
	}
}

// decode decodes the objects of a manifest. Unknown and repeated fields are errors.
func decode(t *testing.T, text []byte) (all []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apps.AddToScheme, core.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
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
	all := decode(t, read(t, "fulgur-agent.yaml"))
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

	checkVolumes(t, pod, agent)
	for _, probe := range []*core.Probe{agent.ReadinessProbe, agent.LivenessProbe} {
		if port := probe.HTTPGet.Port.StrVal; port != agent.Ports[0].Name {
			t.Errorf("a probe uses port %q, want %q", port, agent.Ports[0].Name)
		}
	}
}

// checkVolumes fails unless the container mounts exactly the pod's volumes.
func checkVolumes(t *testing.T, pod core.PodSpec, agent core.Container) {
	t.Helper()
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
}
