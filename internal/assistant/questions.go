package assistant

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"fulgur/internal/profile/report"
)

// about are the arguments of questions about a profile.
type about struct {
	File  string `json:"file" jsonschema:"a file of the list that the tool files returns"`
	Value string `json:"value,omitempty" jsonschema:"the type of the value, such as cpu or off-cpu; the default is the profile's first choice"`
	Time  string `json:"time,omitempty" jsonschema:"only this part of a recording: FROM,TO in seconds since the beginning, such as 2.5,10"`
	Rows  int    `json:"rows,omitempty" jsonschema:"the number of rows, 1 to 200; 20 by default"`
}

// flags returns the flags of fulgur report for the arguments.
func (a about) flags() []string {
	rows := 20
	if a.Rows > 0 {
		rows = min(a.Rows, 200)
	}
	flags := []string{"report", "--quiet", "--format=json", "--top=" + strconv.Itoa(rows)}
	if a.Value != "" {
		flags = append(flags, "--value="+a.Value)
	}
	if a.Time != "" {
		flags = append(flags, "--time="+a.Time)
	}
	return flags
}

func (s *server) report(ctx context.Context, _ *mcp.CallToolRequest, a about) (*mcp.CallToolResult, any, error) {
	return s.answer(ctx, a.File, append(a.flags(), "-")...)
}

// question is the arguments of a question.
type question struct {
	about
	Question string `json:"question" jsonschema:"functions, callers, callees, paths, threads, waits, lines, instructions or timeline"`
	Function string `json:"function,omitempty" jsonschema:"the function of callers, callees, paths, lines and instructions: its name, or a regular expression"`
}

func (s *server) ask(ctx context.Context, _ *mcp.CallToolRequest, q question) (*mcp.CallToolResult, any, error) {
	if _, ok := report.FindQuestion(q.Question); !ok {
		return nil, nil, fmt.Errorf("no question %q; there are %s", q.Question, strings.Join(report.QuestionNames(), ", "))
	}
	args := append(q.flags(), "-", q.Question)
	switch {
	case strings.HasPrefix(q.Function, "-"): // not a flag, but a method of Objective-C, for example
		args = append(args, "^"+regexp.QuoteMeta(q.Function)+"$")
	case q.Function != "":
		args = append(args, q.Function)
	}
	return s.answer(ctx, q.File, args...)
}

// answer runs a command line of fulgur with a profile as its standard input.
func (s *server) answer(ctx context.Context, name string, args ...string) (*mcp.CallToolResult, any, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	output, _, err := s.fulgur(ctx, answerTime, f, args...)
	if err != nil {
		return nil, nil, err
	}
	return text(output)
}

// doctor runs fulgur doctor. Its exit code is 1 if something does not work, which is an answer as well.
func (s *server) doctor(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	output, _, err := s.fulgur(ctx, answerTime, nil, "doctor", "--json")
	if output == "" && err != nil {
		return nil, nil, err
	}
	return text(output)
}
