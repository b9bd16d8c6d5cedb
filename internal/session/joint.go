package session

import (
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
)

// joint measures several subjects together. A subject's index is also its
// source's.
type joint []source.Subject

func (j joint) Complete(c source.Common) error {
	return j.each(func(s source.Subject) error { return s.Complete(c) })
}

func (j joint) Choose() error { return j.each(source.Subject.Choose) }

// each calls f for the subjects until it returns an error: what one of them lacks, such as a
// privilege, others lack too.
func (j joint) each(f func(source.Subject) error) error {
	for _, s := range j {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

func (j joint) Load(common probe.Options) ([]source.Source, error) {
	return j.load(common, func(int, *probe.Options) {})
}

// load loads the sources of all subjects. adapt adapts the options of each.
func (j joint) load(common probe.Options, adapt func(i int, o *probe.Options)) (all []source.Source, err error) {
	for i, s := range j {
		own := common
		own.Source = uint8(i)
		adapt(i, &own)
		sources, err := s.Load(own)
		all = append(all, sources...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (j joint) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	return j[s.Source].Place(p, s)
}

// untimed is a subject without times, for any output format.
type untimed struct{ source.Subject }

// Times implements [source.Subject].
func (untimed) Times() (source.Times, bool) { return source.Times{}, false }

// labelerOf returns a subject as one that knows labels, nil if it does not.
func labelerOf(what source.Subject) source.Labeler {
	if what, ok := what.(untimed); ok {
		return labelerOf(what.Subject)
	}
	labeler, _ := what.(source.Labeler)
	return labeler
}
