package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestSumFolded(t *testing.T) {
	tests := []struct {
		name, text string
		want       counted
		wantErr    bool
	}{
		{"empty", "", counted{}, false},
		{"stacks", "a;b c;d 3\nsh;main 4\n", counted{samples: 7}, false},
		{"bcc's missed stacks", "a;main 3\na;[Missed User Stack] 2\na;main;[Missed Kernel Stack] 1\n", counted{samples: 6, stackless: 3}, false},
		{"fulgur's lost stacks", "[unknown];[stack lost] 2\n", counted{samples: 2, stackless: 2}, false},
		{"no count", "a;b c\n", counted{}, true},
		{"no count at all", "Sampling\n", counted{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sumFolded(strings.NewReader(tt.text))
			if (err != nil) != tt.wantErr {
				t.Fatalf("error %v, want one: %t", err, tt.wantErr)
			}
			if err == nil && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestSumBPFTrace(t *testing.T) {
	const text = `

@[cat, 
    entry_SYSCALL_64+1
    vector[3]: 4 of an odd name
, 
    main+2
]: 12
@[a b, , 
    0x7f0000
]: 5
`
	got, err := sumBPFTrace(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := (counted{samples: 17}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestReportedLost(t *testing.T) {
	tests := []struct {
		stderr string
		want   uint64
	}{
		{"", 0},
		{"100 samples (cpu-clock at 99 Hz)\n", 0},
		{"100 samples\n  12 samples lost  in no count; raise --count-entries\n", 12},
		{"100 samples\n  1 sample lost  in no count\n", 1},
		{"100 samples\n  5 mapping records lost  names may be missing\n", 0},
	}
	for _, tt := range tests {
		if got := reportedLost(tt.stderr); got != tt.want {
			t.Errorf("%q: got %d, want %d", tt.stderr, got, tt.want)
		}
	}
}

func TestFoldPerf(t *testing.T) {
	const text = `swapper     0 10.000000001: 
	ffffffff81000000 idle

Web Content  42 10.500000000: 
	    55d0 operator new(unsigned long)
	    55e0 main

Web Content  42 11.000000000: 
	    55d0 operator new(unsigned long)
	    55e0 main

sh    43 12.250000000: PERF_RECORD_LOST lost 7
sh    43 12.000000000: 
	    7f00 [unknown]

sh    43 11.900000000: 
`
	got, err := foldPerf(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"Web Content;main;operator new(unsigned long)": 2,
		"sh;[unknown]": 1,
		"sh":           1,
	}
	if !maps.Equal(got.counts, want) {
		t.Errorf("got %v, want %v", got.counts, want)
	}
	if got.samples != 4 || got.lost != 7 {
		t.Errorf("got %d samples, %d lost, want 4 and 7", got.samples, got.lost)
	}
	if got.first != 10*time.Second+1 || got.last != 12*time.Second {
		t.Errorf("got samples from %v to %v", got.first, got.last)
	}
}

func TestFoldPerfErrors(t *testing.T) {
	for _, text := range []string{
		"sh 43\n",
		"sh x 1.0:\n",
		"sh 43 1.0\n",
		"sh 43 yesterday:\n",
		"sh 43 1.0: PERF_RECORD_LOST lost some\n",
	} {
		if _, err := foldPerf(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func FuzzFoldPerf(f *testing.F) {
	f.Add("a b  42 10.5: \n\t55d0 f(x)\n\n")
	f.Add("sh 1 1.0: PERF_RECORD_LOST lost 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := foldPerf(strings.NewReader(text))
		if err != nil {
			return
		}
		var sum uint64
		for _, n := range s.counts {
			sum += n
		}
		if sum != s.samples {
			t.Errorf("%d samples in stacks, %d in all", sum, s.samples)
		}
	})
}
