// Package export is the area of the packages that send profiles to a back end. otlpclient
// sends them, spool keeps waiting ones, and delivery combines the two and accounts for every
// sample. otlptest is a back end for tests. No package here measures anything. This package
// itself is empty.
//
// Start with delivery.
package export
