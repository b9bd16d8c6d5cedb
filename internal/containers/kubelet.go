package containers

import (
	"strings"

	"fulgur/internal/profile"
)

// containerLogs is the directory in which the kubelet links the logs of the containers of
// all runtimes.
const containerLogs = "/var/log/containers"

// maxLogs limits the entries of containerLogs that are read. A node has at most a few hundred
// containers, and the logs of some more that have ended.
const maxLogs = 1 << 16

// kubelet completes the owner of a container from the name of its log:
// "POD_NAMESPACE_CONTAINER-ID.log"; see legacyLogSymlink in
// pkg/kubelet/kuberuntime/legacy.go of Kubernetes.
func kubelet(s state, dir string, o *profile.Owner) {
	names, err := s.names(dir, maxLogs)
	if err != nil {
		return
	}
	for _, name := range names {
		if pod, namespace, container, ok := parseLogName(name, o.ContainerID); ok {
			o.Pod, o.Namespace, o.Container = pod, namespace, container
			return
		}
	}
}

// parseLogName splits the name of a container's log. None of the parts contains an
// underscore.
func parseLogName(name, id string) (pod, namespace, container string, ok bool) {
	name, ok = strings.CutSuffix(name, "-"+id+".log")
	parts := strings.Split(name, "_")
	if !ok || id == "" || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}
