package process

import "testing"

// The rings of a CPU stay below the default limit on locked memory, and those of up to 256 CPUs below
// a limit for all.
func TestSidebandPages(t *testing.T) {
	for _, test := range []struct{ cpus, pageSize, want int }{
		{1, 4 << 10, 64},
		{80, 4 << 10, 64},
		{128, 4 << 10, 32},
		{256, 4 << 10, 16},
		{1024, 4 << 10, 16},
		{2, 16 << 10, 16},
		{2, 64 << 10, 2},
		{128, 64 << 10, 2},
		{256, 64 << 10, 2},
	} {
		pages := sidebandPages(test.cpus, test.pageSize)
		if pages != test.want {
			t.Errorf("%d CPUs, pages of %d bytes: got rings of %d pages, want %d", test.cpus, test.pageSize, pages, test.want)
		}
		each := rings(pages*test.pageSize, test.pageSize)
		if each > ringsOfCPU {
			t.Errorf("%d CPUs, pages of %d bytes: got rings of %d bytes for each CPU, above the limit", test.cpus, test.pageSize, each)
		}
		if test.pageSize == 4<<10 && test.cpus <= 256 && test.cpus*each > ringsOfAll {
			t.Errorf("%d CPUs: got rings of %d bytes for each CPU, above the limit for all", test.cpus, each)
		}
	}
}
