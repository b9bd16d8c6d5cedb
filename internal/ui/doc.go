// Package ui is the area of what users see besides files: pages served to a browser
// (view, live, localhttp), the terminal (terminal, top) and the manual pages (clidoc). No
// package here measures anything. This package itself is empty.
//
// Start with view, which shows a stored profile, then live and top.
package ui
