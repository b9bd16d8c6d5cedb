package main

import "testing"

func TestNewest(t *testing.T) {
	for _, tc := range []struct{ lines, want string }{
		{"", ""},
		{
			"linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 (signed)\n" +
				"linux-image-6.1.0-56-cloud-amd64 - Linux 6.1 (signed)\n" +
				"linux-image-6.1.0-48-cloud-amd64 - Linux 6.1 (signed)\n",
			"linux-image-6.1.0-56-cloud-amd64",
		},
		{
			"linux-image-6.12.107+deb12-cloud-amd64 - Linux 6.12 (signed)\n" +
				"linux-image-6.12.99+deb12-cloud-amd64 - Linux 6.12 (signed)\n",
			"linux-image-6.12.107+deb12-cloud-amd64",
		},
	} {
		if got := newest(tc.lines); got != tc.want {
			t.Errorf("newest(%q) = %q, want %q", tc.lines, got, tc.want)
		}
	}
}
