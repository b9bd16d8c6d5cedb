// Package ui is the area of the user interface: pages served to a browser
// (view, live, localhttp, connlimit), the terminal (terminal, top), and completion and the manual pages
// (clidoc). No package here measures anything. This package itself is empty.
//
// Start with view, which shows a profile of a file, then live and top.
package ui
