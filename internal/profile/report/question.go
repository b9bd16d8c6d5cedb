package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/annotate"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/own"
)

// AnswerVersion is the version of the JSON of answers. Members may be added to a version, but not change.
const AnswerVersion = 1

// Question is a question about a profile.
type Question struct {
	Name string
	// OfFunction is set if the question is about a function, and OfAny if it may be.
	OfFunction, OfAny bool
	// Title is the beginning of the answer, and Help says what it lists.
	Title, Help string

	// OfCode is set if it is about the code of functions.
	OfCode bool
	// OfTimes is set if it is about the times of samples.
	OfTimes bool

	value   string // the only value that it is about, "" for any
	columns []column
	answer  func(*asked)
	// read is the answer to questions that can fail, or nil.
	read func(*asked) error
}

// Questions are all questions, in the order of their help.
var Questions = []Question{
	{
		Name: "functions", Title: "Functions", Help: "the functions with their self and total shares",
		columns: []column{selfColumn, totalColumn, functionColumn, moduleColumn}, answer: (*asked).functions,
	},
	{
		Name: "callers", OfFunction: true, Title: "Direct callers of", Help: "the direct callers of a function",
		columns: []column{totalColumn, partColumn, functionColumn, moduleColumn}, answer: (*asked).callers,
	},
	{
		Name: "callees", OfFunction: true, Title: "Direct callees of", Help: "what a function calls directly",
		columns: []column{totalColumn, partColumn, functionColumn, moduleColumn}, answer: (*asked).callees,
	},
	{
		Name: "paths", OfAny: true, Title: "Stacks", Help: "the heaviest stacks; with a function, those that contain it",
		columns: []column{totalColumn, pathColumn}, answer: (*asked).paths,
	},
	{
		Name: "threads", Title: "Threads", Help: "the threads, or the processes in profiles without threads",
		columns: []column{totalColumn, processColumn, threadColumn, taskColumn}, answer: (*asked).threads,
	},
	{
		Name: "waits", Title: "Waits", Help: "what threads wait for, by the innermost function of a program", value: "off-cpu",
		columns: []column{totalColumn, reasonColumn, functionColumn, moduleColumn}, answer: (*asked).waits,
	},
	{
		Name: "lines", OfFunction: true, Title: "Lines of", Help: "the source lines of a function",
		columns: []column{selfColumn, totalColumn, lineColumn}, answer: (*asked).lines,
	},
	{
		Name: "instructions", OfFunction: true, Title: "Instructions of", Help: "the instructions of a function, if its file is at hand, or their addresses", OfCode: true,
		columns: []column{selfColumn, totalColumn, addressColumn, textColumn, lineColumn, moduleColumn}, answer: (*asked).instructions,
	},
	{
		Name: "timeline", Title: "Timeline", Help: "when each thread of a recording ran, was ready to run, and waited", OfTimes: true,
		columns: []column{processColumn, threadColumn, taskColumn, stateColumn, wholeColumn}, read: (*asked).timeline,
	},
}

// QuestionNames returns the names of all questions.
func QuestionNames() (list []string) {
	for _, q := range Questions {
		list = append(list, q.Name)
	}
	return list
}

// FindQuestion returns the question with a name, and false if there is none.
func FindQuestion(name string) (Question, bool) {
	i := slices.IndexFunc(Questions, func(q Question) bool { return q.Name == name })
	if i < 0 {
		return Question{}, false
	}
	return Questions[i], true
}

// Answer is the answer to a question. Names in it are safe to print in the sense of package plain. Shares are
// from 0 to 1.
type Answer struct {
	Version  int    `json:"version"`
	Question string `json:"question"`
	// Value and Unit are the type of the value of all amounts, and Total is its sum over all samples.
	Value string `json:"value"`
	Unit  string `json:"unit"`
	Total int64  `json:"total"`
	// Functions are the functions that the question is about, with their own amounts. MoreFunctions is the number
	// of functions left out.
	Functions     []Row `json:"functions,omitempty"`
	MoreFunctions int   `json:"more_functions,omitempty"`
	// Rows are the answer, largest amounts first, and More is the number of rows left out.
	Rows []Row `json:"rows"`
	More int   `json:"more"`
	// Notes say what is missing.
	Notes []string `json:"notes,omitempty"`
	// Slices are the slices of time of a timeline.
	Slices *Slices `json:"slices,omitempty"`

	question Question
	isOwn    bool // Self is what functions own, not what ends in them
}

// Row is a row of an answer. The members that a question does not use are absent.
type Row struct {
	Function string `json:"function,omitempty"`
	Module   string `json:"module,omitempty"`
	// File and Line are a line of source, 0 if only the file is known.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Address is that of an instruction, hexadecimal, as linked, and Text the instruction, if it is known. Without it, the
	// address can be within the instruction.
	Address string `json:"address,omitempty"`
	Text    string `json:"text,omitempty"`
	Process int    `json:"pid,omitempty"`
	Thread  int    `json:"tid,omitempty"`
	Task    string `json:"name,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Frames are a stack, root first.
	Frames []string `json:"frames,omitempty"`
	// Self and Amount are in the unit of the value, SelfShare and Share of its total. Self is what the
	// function owns, see package own.
	Self      int64   `json:"self,omitempty"`
	Amount    int64   `json:"amount"`
	SelfShare float64 `json:"self_share,omitempty"`
	Share     float64 `json:"share"`
	// Part is the share of the function that the question is about.
	Part float64 `json:"part,omitempty"`
	// Values are the amounts of all values by type, if there are several.
	Values map[string]int64 `json:"values,omitempty"`
	// States are the shares of the time that a thread was in each state, Over those in each slice of time.
	States map[string]float64   `json:"states,omitempty"`
	Over   map[string][]float64 `json:"over,omitempty"`

	// State is the state to show: in text, each state of a thread has a row. Continued is set for all but the first.
	State     string `json:"-"`
	Continued bool   `json:"-"`
}

// asked is a question to answer.
type asked struct {
	*facts
	*Answer
	choice   Choice
	owners   own.Owners
	native   bool
	is       []bool // by frame: whether it belongs to the function that the question is about; nil for none
	function int64  // the sum of the value over stacks with that function
}

// Choice is what an answer is about.
type Choice struct {
	// Value is the index of the value, and Rows the maximum number of rows.
	Value, Rows int
	// Of is the name of a function as tables show it, or else a regular expression (RE2) that matches such
	// names anywhere, "" for none.
	Of string
	// Native counts each stack for its leaf, even if that is an interpreter's function.
	Native bool
	// Assembly returns the code that contains places of the profile, for questions about code; nil if there is none.
	Assembly func(map[annotate.Place]annotate.Weight) []code.Assembly
	// Times is the recording, for questions about times. Offset is its start in nanoseconds since the
	// beginning of the recording of which it is a part, and Slices the number of slices of time.
	Times  *profile.Timeline
	Offset int64
	Slices int
}

// Ask answers a question about p.
func Ask(p *profile.Profile, q Question, c Choice) (*Answer, error) {
	value := c.Value
	if q.value != "" {
		if value = slices.IndexFunc(p.ValueTypes, func(v profile.ValueType) bool { return v.Type == q.value }); value < 0 {
			return nil, fmt.Errorf("the profile has no value %s, which the answer is about; record it with fulgur offcpu, record or profile --wall", q.value)
		}
	}
	v := p.ValueTypes[value]
	a := &asked{
		facts:  &facts{Profile: p, value: value, whole: p.Magnitude(value), waiters: p.Waiters()},
		choice: c, owners: text.OwnersOf(p, c.Native), native: c.Native,
		Answer: &Answer{
			Version: AnswerVersion, Question: q.Name, Value: plain.Terminal(v.Type), Unit: plain.Terminal(v.Unit), Total: p.Total(value),
			Rows: []Row{}, question: q,
		},
	}
	a.isOwn = a.owners.Scripts && !c.Native
	if c.Of != "" {
		if err := a.choose(c.Of); err != nil {
			return nil, err
		}
	}
	if q.read == nil {
		q.answer(a)
	} else if err := q.read(a); err != nil {
		return nil, err
	}
	a.finish(c.Rows)
	return a.Answer, nil
}

// maxSuggestions limits the names in the error for an unknown function.
const maxSuggestions = 5

// choose finds the frames of the functions that are asked for.
func (a *asked) choose(of string) error {
	names := make([]string, len(a.Frames))
	exact := false
	for id := 1; id < len(names); id++ {
		names[id] = a.GroupName(profile.FrameID(id))
		exact = exact || names[id] == of
	}
	match := func(name string) bool { return name == of }
	if !exact {
		expression, err := regexp.Compile(of)
		if err != nil {
			return fmt.Errorf("no function has the name %q, and it is not a regular expression: %w", of, err)
		}
		match = expression.MatchString
	}
	a.is = make([]bool, len(names))
	found := false
	for id := 1; id < len(names); id++ {
		a.is[id] = match(names[id])
		found = found || a.is[id]
	}
	if !found {
		return fmt.Errorf("no function matches %q%s", of, a.similar(names, of))
	}
	return nil
}

// similar returns a hint with names that contain a word, in any case, or "".
func (a *asked) similar(names []string, word string) string {
	var list []string
	for _, name := range names {
		if name != "" && strings.Contains(strings.ToLower(name), strings.ToLower(word)) && !slices.Contains(list, name) {
			if list = append(list, plain.Terminal(name)); len(list) == maxSuggestions {
				break
			}
		}
	}
	if list == nil {
		return "; fulgur report FILE functions lists them"
	}
	return "; similar names: " + strings.Join(list, ", ")
}
