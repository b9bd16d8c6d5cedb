package main

import "testing"

func TestNewest(t *testing.T) {
	for _, tc := range []struct {
		names  []string
		series string
		later  bool
		want   string
	}{
		{nil, "6.1", true, ""},
		{
			[]string{"linux-image-6.1.0-9-cloud-amd64", "linux-image-6.1.0-56-cloud-amd64", "linux-image-6.1.0-48-cloud-amd64", "linux-image-6.12.107+deb12-cloud-amd64"},
			"6.1", true, "linux-image-6.1.0-56-cloud-amd64",
		},
		{
			[]string{"linux-image-6.12.107+deb12-cloud-amd64", "linux-image-6.12.99+deb12-cloud-amd64", "linux-image-cloud-amd64"},
			"6.12", false, "linux-image-6.12.107+deb12-cloud-amd64",
		},
		{[]string{"linux-image-7.3.2-cloud-amd64", "linux-image-7.10.1-cloud-amd64", "linux-image-7.1.9-cloud-amd64"}, "7.2", true, "linux-image-7.10.1-cloud-amd64"},
		{[]string{"linux-image-7.3.2-cloud-amd64"}, "7.2", false, ""},
	} {
		if got := newest(tc.names, tc.series, tc.later); got != tc.want {
			t.Errorf("newest(%q, %s, %v) = %q, want %q", tc.names, tc.series, tc.later, got, tc.want)
		}
	}
}

func TestWantedFile(t *testing.T) {
	for name, want := range map[string]string{
		"./boot/vmlinuz-5.10.0-32-cloud-amd64":                                    "image",
		"./usr/lib/modules/7.2.13+deb14-cloud-amd64/vmlinuz":                      "image",
		"./lib/modules/5.10.0-32-cloud-amd64/kernel/drivers/block/loop.ko":        "loop",
		"./usr/lib/modules/7.2.13-cloud-amd64/kernel/drivers/block/loop.ko.xz":    "loop",
		"./lib/modules/5.10.0-32-cloud-amd64/kernel/fs/fuse/fuse.ko":              "fuse",
		"./lib/modules/5.10.0-32-cloud-amd64/kernel/fs/fuse/virtiofs.ko":          "",
		"./boot/System.map-5.10.0-32-cloud-amd64":                                 "",
		"./lib/modules/5.10.0-32-cloud-amd64/kernel/drivers/block/loop.ko/a/b.ko": "",
	} {
		got := ""
		if found := wantedFile.FindStringSubmatch(name); found != nil {
			if got = found[1]; got == "" {
				got = "image"
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
