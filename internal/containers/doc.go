// Package containers finds the container, the Kubernetes pod and the systemd unit of
// processes by their cgroups.
//
// A cgroup's path has the ID of a container, but any user with a cgroup of their own may
// name it "docker-ID.scope". So an ID counts only if the files of a container runtime know
// it, and these belong to root. For a cgroup below the slice of a user, they may instead
// belong to that user. The files also have the names. Sockets and databases of runtimes
// are never opened.
//
// Each runtime is one file, which implements the interface runtime. [Finder] returns
// untrusted text.
package containers
