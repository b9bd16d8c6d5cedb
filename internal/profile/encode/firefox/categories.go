package firefox

import "fulgur/internal/profile"

// The categories by index in meta.categories.
const (
	categoryOther = iota
	categoryIdle
	categoryUser
	categoryInlined
	categoryKernel
	categoryJIT
	categoryDisk
	categoryMemory
)

// category is an entry of meta.categories. The first subcategory is always "Other".
type category struct {
	Name          string   `json:"name"`
	Color         string   `json:"color"`
	Subcategories []string `json:"subcategories"`
}

// newCategories returns the categories. The front end treats two of them specially: the
// first gray one is the default, and the one named "Idle" can be hidden everywhere.
func newCategories() []category {
	all := []category{
		categoryOther:   {Name: "Other", Color: "grey"},
		categoryIdle:    {Name: "Idle", Color: "transparent"},
		categoryUser:    {Name: "User", Color: "yellow"},
		categoryInlined: {Name: "Inlined", Color: "lightblue"},
		categoryKernel:  {Name: "Kernel", Color: "orange"},
		categoryJIT:     {Name: "JIT", Color: "green"},
		categoryDisk:    {Name: "Disk", Color: "purple"},
		categoryMemory:  {Name: "Memory", Color: "brown"},
	}
	for i := range all {
		all[i].Subcategories = []string{"Other"}
	}
	return all
}

// categoryOf returns the category of a frame.
func categoryOf(f profile.Frame) int {
	switch f.Kind {
	case profile.KindKernel:
		return categoryKernel
	case profile.KindJIT:
		return categoryJIT
	case profile.KindMarker:
		return categoryOther
	}
	if f.Inlined {
		return categoryInlined
	}
	return categoryUser
}
