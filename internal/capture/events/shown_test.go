package events

import (
	"slices"
	"strings"
	"testing"

	"fulgur/internal/linux/tracefs"
)

func TestShownNumber(t *testing.T) {
	for _, test := range []struct {
		form   form
		signed uint8
		size   uint16
		n      uint64
		want   string
	}{
		{decimal, 0, 8, 1 << 63, "9223372036854775808"},
		{decimal, 1, 4, ^uint64(99), "-100"},
		{hexadecimal, 0, 8, 4096, "0x1000"},
		{word, 1, 8, 0x7f0000001000, "0x7f0000001000"},
		{word, 1, 8, ^uint64(10), "-11"},
		{word, 0, 8, 77, "77"},
		{word, 1, 8, 0xffffffff81000000, "-2130706432"},
		{word, 1, 8, 0xffff888000000000, "0xffff888000000000"},
		{word, 0, 4, 0xffffffff, "4294967295"},
	} {
		if got := (Shown{form: test.form, field: Field{Size: test.size, IsSigned: test.signed}}).Number(test.n); got != test.want {
			t.Errorf("%#x as form %d: got %s, want %s", test.n, test.form, got, test.want)
		}
	}
}

func TestShownText(t *testing.T) {
	long := strings.Repeat("x", 63)
	for in, want := range map[string]string{
		"\x00tail": `""`, "a\x1b[2J\xff\n\x00\x00": `a\x1b[2J\xff\n`, "a\x00b\x00": "a", long[:62] + "\x00\x00": long[:62], long + "\x00": long + "…", long + "x": long + "x…",
	} {
		if got := (Shown{}).Text([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// The fields of a tracepoint that have a text are shown as strings. Fields that cannot be
// shown are left out.
func TestShownFields(t *testing.T) {
	r := record{userPointers: true, fields: []tracefs.Field{
		{Name: "__syscall_nr", Type: "int", Offset: 8, Size: 4},
		{Name: "dfd", Type: "int", Offset: 16, Size: 8},
		{Name: "filename", Type: "const char *", Offset: 24, Size: 8},
		{Name: "into", Type: "char *", Offset: 32, Size: 8},
		{Name: "args", Type: "unsigned long[6]", Offset: 32, Size: 48},
		{Name: "buf", Type: "struct x *", Offset: 40, Size: 8},
	}}
	l, shown, err := Query{Shown: true}.layout(r)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, s := range shown {
		names = append(names, s.Name)
		if l[firstShown+i] != s.field {
			t.Errorf("%s: got layout %+v, want %+v", s.Name, l[firstShown+i], s.field)
		}
	}
	if got := strings.Join(names, " "); got != "dfd filename into buf" {
		t.Fatalf("got fields %s, want dfd filename into buf", got)
	}
	if f := shown[0].field; f.Size != 4 || f.IsSigned != 1 {
		t.Errorf("dfd: got %+v, want a signed number of 4 bytes", f)
	}
	if shown[1].field.String == 0 || shown[2].field.String != 0 || shown[3].field.String != 0 || shown[3].form != hexadecimal {
		t.Errorf("got %+v, want a string and an address", shown)
	}
	if _, shown, err = (Query{}).layout(r); len(shown) != 0 || err != nil {
		t.Errorf("got %v, %v, want nothing to show", shown, err)
	}
}

// Fields are shown by name: as strings if their type says so, or if that is asked for.
func TestShow(t *testing.T) {
	kernel := record{userPointers: true, fields: []tracefs.Field{
		{Name: "fd", Type: "int", Offset: 16, Size: 8}, {Name: "filename", Type: "const char *", Offset: 24, Size: 8},
	}}
	usdt := operands{"-4@%edi", "8@%rsi"}
	for _, test := range []struct {
		list   string
		fields Fields
		want   string // names, with the string of each ":string" after it; "" for an error
	}{
		{"filename,field:fd", kernel, "filename:string fd"},
		{"fd", kernel, "fd"},
		{"arg1", usdt, "arg1"},
		{"arg1:string, arg0", usdt, "arg1:string arg0"},
		{"field:arg1:string", usdt, "arg1:string"},
		{"arg0:string", usdt, ""}, // of 4 bytes
		{"arg2", usdt, ""},
		{"fd:string", kernel, ""},
		{"name", kernel, ""},
		{"arg3", call{}, "arg3"}, // of an unknown type
		{"arg3:string", call{}, "arg3:string"},
		{"arg1,arg1", usdt, ""},
		{"arg1,", usdt, ""},
		{":string", usdt, ""},
		{"arg0,arg1,arg2,arg3,arg4,arg5,arg6,arg7,arg8", call{}, ""},
	} {
		list, err := ParseShow(test.list)
		var l layout
		var shown []Shown
		if err == nil {
			l, shown, err = Query{Show: list}.layout(test.fields)
		}
		var names []string
		for i, s := range shown {
			name := s.Name
			if s.field.String != 0 {
				name += ":string"
			}
			names = append(names, name)
			if l[firstShown+i] != s.field {
				t.Errorf("%s: got layout %+v, want %+v", test.list, l[firstShown+i], s.field)
			}
		}
		if got := strings.Join(names, " "); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %q, %v; want %q", test.list, got, err, test.want)
		}
	}
}

// A cookie names the point and its place.
func TestCookie(t *testing.T) {
	p := &Probe{Event: Event{Kind: Kprobe, Name: "a*"}, ByPoint: true, Places: make([]layout, 2), Points: []Point{{Name: "aa"}, {Name: "ab", Place: 1}}}
	p.unite()
	for i, want := range []uint64{0, 1<<32 | 1} {
		got := p.Cookie(i)
		point, ok := p.PointOf(got)
		if got != want || !ok || point.Name != p.Points[i].Name || p.NameOf(point) != "kprobe:"+point.Name {
			t.Errorf("point %d: got cookie %#x of %+v, %t, want %#x", i, got, point, ok, want)
		}
	}
	if _, ok := p.PointOf(2 << 32); ok {
		t.Error("got a point for a cookie that does not exist")
	}
	p.ByPoint = false
	if got := p.Cookie(1); got != 1 || p.NameOf(p.Points[1]) != "kprobe:a*" {
		t.Errorf("got cookie %#x, name %s, want 1 and the event's", got, p.NameOf(p.Points[1]))
	}
}

// Places of one event have the same number, unless they differ in the fields to show. Results
// distinguish only different events.
func TestPlacesOfEvent(t *testing.T) {
	arg0 := []Shown{{Name: "arg0"}}
	for name, test := range map[string]struct {
		points        []Point
		want          []uint64 // numbers in cookies
		distinguishes bool
	}{
		"one event":    {[]Point{{Name: "p:x"}, {Name: "p:x"}}, []uint64{0, 0}, false},
		"two events":   {[]Point{{Name: "p:x"}, {Name: "p:x"}, {Name: "p:y"}, {Name: "p:x"}, {Name: "p:y"}}, []uint64{0, 0, 2, 0, 2}, true},
		"other fields": {[]Point{{Name: "p:x", Shown: arg0}, {Name: "p:x"}, {Name: "p:x"}}, []uint64{0, 1, 1}, false},
	} {
		p := &Probe{Event: Event{Kind: USDT, Path: "/a", Group: "p", Name: "*"}, ByPoint: true, Points: test.points}
		p.unite()
		var got []uint64
		cookies := false
		for i := range p.Points {
			got = append(got, p.Cookie(i)>>32)
			cookies = cookies || p.Cookie(i) != 0
		}
		if !slices.Equal(got, test.want) || p.Distinguishes() != test.distinguishes || p.NeedsCookies() != cookies {
			t.Errorf("%s: got numbers %v, want %v; distinguishes %t, needs cookies %t", name, got, test.want, p.Distinguishes(), p.NeedsCookies())
		}
	}
}
