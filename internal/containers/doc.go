// Package containers finds the container, the Kubernetes pod and the systemd unit of a
// process by its cgroup.
//
// A cgroup's path contains the ID of a container, but any user may name a cgroup
// "docker-ID.scope". So an ID counts only if the files of a container runtime contain it and
// belong to root or, for a cgroup below the slice of a user, to that user. The same files
// contain the names. The package never opens sockets or databases of runtimes.
//
// Each runtime has one source file, with an implementation of the interface runtime. The
// names that [Finder] returns are untrusted.
package containers
