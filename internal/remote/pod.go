package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"fulgur/internal/linux/child"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// Pod is a Kubernetes pod that the user's kubectl reaches. fulgur measures it from a pod of its own, on the
// same node, which exists only for the run.
type Pod struct {
	namespace, name string // namespace is "" for that of kubectl's configuration
	cluster         Cluster
}

// Cluster says how to reach a cluster, and what to run there.
type Cluster struct {
	// Flags are those of kubectl, such as --context.
	Flags []string
	// Image is fulgur's image.
	Image string
	// Namespace is that of fulgur's pod, "" for that of the measured one.
	Namespace string
}

// dnsName is a name of Kubernetes: of a namespace, or of a pod.
var dnsName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// ParsePod parses the name of a pod, NAMESPACE/POD or POD. Errors are usage errors.
func ParsePod(text string, c Cluster) (Pod, error) {
	p := Pod{name: text, cluster: c}
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		if p.namespace, p.name = namespace, name; !dnsName.MatchString(namespace) {
			return Pod{}, usage.Errorf("%s: not the name of a namespace: give NAMESPACE/POD", plain.Terminal(text))
		}
	}
	if !dnsName.MatchString(p.name) {
		return Pod{}, usage.Errorf("%s: not the name of a pod: give NAMESPACE/POD", plain.Terminal(text))
	}
	if c.Namespace != "" && !dnsName.MatchString(c.Namespace) {
		return Pod{}, usage.Errorf("%s: not the name of a namespace", plain.Terminal(c.Namespace))
	}
	return p, nil
}

// Label implements [Transport].
func (p Pod) Label() string { return strings.Trim(p.namespace+"-"+p.name, "-") }

// The time limits of fulgur's pod.
const (
	// startLimit is how long its image may take to arrive and to start.
	startLimit = 3 * time.Minute
	// podLimit ends it if nothing else does. Without a connection, it ends by itself.
	podLimit = 24 * time.Hour
	// deleteLimit is how long kubectl may take to delete it.
	deleteLimit = 30 * time.Second
)

// maxAnswer bounds an answer of kubectl, in bytes.
const maxAnswer = 4 << 20

// errNoKubectl is the error if there is no kubectl.
var errNoKubectl = errors.New("kubectl is missing on this machine")

// kubectl runs kubectl with some input, and returns its output.
func (p Pod) kubectl(ctx context.Context, messages io.Writer, input []byte, args ...string) ([]byte, error) {
	cmd := unsignaled(p.arguments(args...))
	answer := new(answer)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(input), answer, messages, lastMessages
	if err := child.Start(cmd); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return answer.text, nil
}

// arguments returns a command line of kubectl.
func (p Pod) arguments(args ...string) []string {
	return append(append([]string{"kubectl"}, p.cluster.Flags...), args...)
}

// answer keeps what is written to it, up to maxAnswer bytes.
type answer struct{ text []byte }

// Write implements io.Writer.
func (a *answer) Write(text []byte) (int, error) {
	if len(a.text)+len(text) > maxAnswer {
		return 0, errGarbled
	}
	a.text = append(a.text, text...)
	return len(text), nil
}

// object is the part of a pod that matters here.
type object struct {
	Metadata struct{ Namespace string }
	Spec     struct{ NodeName string }
	Status   struct{ Phase string }
}

// connect implements [Transport].
func (p Pod) connect(ctx context.Context, s *setup) (*link, error) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return nil, errNoKubectl
	}
	node, err := p.find(ctx, s.stderr)
	if err != nil {
		return nil, err
	}
	s.connected() // nothing asks for a password any more
	namespace, name := p.cluster.Namespace, "fulgur-"+strings.ToLower(rand.Text()[:10])
	if namespace == "" {
		namespace = node.Metadata.Namespace
	}
	manifest, err := json.Marshal(measuringPod(namespace, name, node.Spec.NodeName, p.cluster.Image))
	if err != nil {
		return nil, err
	}
	// In every case: kubectl may fail after it has made the pod.
	remove := func() {
		ctx, stop := context.WithTimeout(context.Background(), deleteLimit)
		defer stop()
		if _, err := p.kubectl(ctx, s.stderr, nil, "delete", "pod", name, "--namespace="+namespace, "--ignore-not-found", "--wait=false"); err != nil {
			s.note("fulgur's pod may still be there: kubectl delete pod --namespace=%s %s", namespace, name)
		}
	}
	l, err := p.start(ctx, s, namespace, name, manifest)
	if err != nil {
		remove()
		return nil, err
	}
	l.cleanUp, l.pod = remove, node.Metadata.Namespace+"/"+p.name
	return l, nil
}

// find returns the pod to measure, which must run.
func (p Pod) find(ctx context.Context, messages io.Writer) (o object, err error) {
	args := []string{"get", "pod", p.name, "--output=json"}
	if p.namespace != "" {
		args = append(args, "--namespace="+p.namespace)
	}
	text, err := p.kubectl(ctx, messages, nil, args...)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(text, &o); err != nil || !dnsName.MatchString(o.Metadata.Namespace) {
		return o, errGarbled
	}
	if o.Spec.NodeName == "" || o.Status.Phase != "Running" {
		return o, fmt.Errorf("pod %s/%s does not run: it is %s", o.Metadata.Namespace, p.name, plain.Terminal(o.Status.Phase))
	}
	return o, nil
}

// start makes fulgur's pod, and connects to it.
func (p Pod) start(ctx context.Context, s *setup, namespace, name string, manifest []byte) (*link, error) {
	if _, err := p.kubectl(ctx, s.stderr, manifest, "create", "--filename=-", "--output=name", "--validate=false"); err != nil {
		return nil, fmt.Errorf("%w: the namespace of fulgur's pod, %s, must allow privileged pods", err, namespace)
	}
	if _, err := p.kubectl(ctx, s.stderr, nil, "wait", "--for=condition=Ready", "pod/"+name, "--namespace="+namespace, "--timeout="+startLimit.String()); err != nil {
		reason, _ := p.kubectl(ctx, s.stderr, nil, "get", "pod", name, "--namespace="+namespace,
			"--output=jsonpath={.status.phase} {.status.reason} {.status.containerStatuses[*].state.waiting.reason}")
		return nil, fmt.Errorf("fulgur's pod does not start (%s): can the node pull the image %s?", plain.Terminal(strings.Join(strings.Fields(string(reason)), ", ")), plain.Terminal(p.cluster.Image))
	}
	// Not attach: what the first process of a container writes also goes to the logs of the node.
	l, err := startLink(ctx, p.arguments("exec", name, "--namespace="+namespace, "--container="+podContainer, "--stdin",
		"--", "/usr/bin/fulgur", Subcommand, "--attend="+idleFile), s)
	if err != nil {
		return nil, err
	}
	l.heard() // kubectl asks for nothing more
	return l, nil
}

const (
	// podContainer is the name of the container of fulgur's pod.
	podContainer = "fulgur"
	// idleFile is the file of [Idle] there.
	idleFile = "/var/tmp/fulgur.pid"
)

// values are fields of an object of Kubernetes.
type values map[string]any

// measuringPod returns fulgur's pod on a node. It runs until it is deleted, or the connection to the process
// that measures breaks.
func measuringPod(namespace, name, node, image string) values {
	var mounts, volumes []values
	for _, m := range []struct {
		name, host, at string
		readOnly       bool
	}{
		{"cgroup", "/sys/fs/cgroup", "/host/cgroup", true},
		{"tracing", "/sys/kernel/tracing", "/sys/kernel/tracing", false},
		// For the names of containers and pods.
		{"containerd", "/run/containerd", "/run/containerd", true},
		{"logs", "/var/log/containers", "/var/log/containers", true},
	} {
		volumes = append(volumes, values{"name": m.name, "hostPath": values{"path": m.host}})
		mounts = append(mounts, values{"name": m.name, "mountPath": m.at, "readOnly": m.readOnly})
	}
	volumes = append(volumes, values{"name": "tmp", "emptyDir": values{"sizeLimit": fmt.Sprintf("%dGi", 2*maxBytes>>30)}})
	mounts = append(mounts, values{"name": "tmp", "mountPath": "/var/tmp"})
	return values{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": values{"namespace": namespace, "name": name, "labels": values{"app.kubernetes.io/name": "fulgur"}},
		"spec": values{
			"nodeName": node, "hostPID": true, "restartPolicy": "Never", "automountServiceAccountToken": false,
			"activeDeadlineSeconds": int64(podLimit.Seconds()), "terminationGracePeriodSeconds": 30,
			"tolerations": []values{{"operator": "Exists"}},
			"containers": []values{{
				"name": podContainer, "image": image, "imagePullPolicy": "IfNotPresent", "args": []string{Subcommand, "--idle=" + idleFile},
				"securityContext": values{"privileged": true, "runAsUser": 0}, "volumeMounts": mounts,
			}},
			"volumes": volumes,
		},
	}
}
