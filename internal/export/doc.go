// Package export is the area of profiles on their way to a back end: otlpclient sends
// them, spool keeps what waits, and delivery does both and accounts for every sample.
// otlptest is a back end for tests. No package here measures anything. This package itself
// is empty.
//
// Start with delivery.
package export
