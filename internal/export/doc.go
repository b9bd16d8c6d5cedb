// Package export is the area of profiles on their way to a back end: otlpclient sends
// them, and otlptest is a back end for tests. No package here measures anything. This
// package itself is empty.
package export
