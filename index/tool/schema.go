package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// schema is an input schema, compiled once when a call first needs it: most
// tools are never called.
type schema struct {
	once     sync.Once
	compiled *jsonschema.Schema
	err      error
}

// ArgumentError says which arguments do not fit a tool's input schema.
type ArgumentError struct {
	ID       ID
	Problems []string // one sentence each, the place first
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("the arguments do not fit the input schema of %s: %s", e.ID, strings.Join(e.Problems, "; "))
}

// Validate checks arguments (nil means {}) against the input schema. It returns
// an *ArgumentError for arguments that do not fit. A schema that cannot be
// compiled, or at which the validator fails, refuses nothing but what is no
// object: SchemaError tells about the former, and the server has the last word.
func (t *Tool) Validate(arguments json.RawMessage) error {
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(arguments))
	if err != nil {
		return &ArgumentError{t.ID, []string{"the arguments are not valid JSON: " + err.Error()}}
	}
	if _, ok := value.(map[string]any); !ok {
		return &ArgumentError{t.ID, []string{"the arguments must be a JSON object"}}
	}
	if t.SchemaError() != nil || t.schema.compiled == nil {
		return nil
	}
	err = t.schema.check(value)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		if n := uncountable(value); n != "" {
			return &ArgumentError{t.ID, []string{fmt.Sprintf("the number %.40s is too large or too small to be checked", n)}}
		}
		return nil
	}
	var problems []string
	leaves(invalid, func(e *jsonschema.ValidationError) {
		place := strings.Join(e.InstanceLocation, ".")
		if place == "" {
			place = "arguments"
		}
		problems = append(problems, place+": "+e.ErrorKind.LocalizedString(english))
	})
	sort.Strings(problems)
	return &ArgumentError{t.ID, compact(problems)}
}

var english = message.NewPrinter(language.English)

// leaves visits the causes that say something; the nodes above them only say
// that something below failed.
func leaves(e *jsonschema.ValidationError, visit func(*jsonschema.ValidationError)) {
	if len(e.Causes) == 0 {
		visit(e)
	}
	for _, c := range e.Causes {
		leaves(c, visit)
	}
}

// compact drops repeats and keeps at most eight: an anyOf of many branches
// fails in each of them.
func compact(sorted []string) []string {
	var out []string
	for i, s := range sorted {
		if i > 0 && s == sorted[i-1] {
			continue
		}
		if len(out) == 8 {
			return append(out, "and more")
		}
		out = append(out, s)
	}
	return out
}

// check validates a value. The validator panics on numbers beyond its arithmetic;
// that comes back as an error which is no *jsonschema.ValidationError, and so does
// a fault of the validator itself: it must cost one check, not the daemon.
func (s *schema) check(value any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("checking against the input schema: %v", r)
		}
	}()
	return s.compiled.Validate(value)
}

// uncountable returns a number in a decoded JSON value that is beyond the
// validator's arithmetic, or "".
func uncountable(value any) json.Number {
	switch v := value.(type) {
	case json.Number:
		if _, ok := new(big.Rat).SetString(string(v)); !ok {
			return v
		}
	case []any:
		for _, e := range v {
			if n := uncountable(e); n != "" {
				return n
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if n := uncountable(v[k]); n != "" {
				return n
			}
		}
	}
	return ""
}

// SchemaError says why the input schema cannot be used to check arguments.
func (t *Tool) SchemaError() error {
	s := t.schema
	s.once.Do(func() { s.compiled, s.err = compile(t.InputSchema) })
	return s.err
}

func compile(raw json.RawMessage) (_ *jsonschema.Schema, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	// The text is a stranger's: a panic of the compiler must cost one check only.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("compiling the input schema: %v", r)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(refuseToLoad{})
	c.UseRegexpEngine(lenientRegexp)
	const url = "schema:input"
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("reading the input schema: %w", err)
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("compiling the input schema: %w", err)
	}
	return compiled, nil
}

// refuseToLoad keeps a $ref from reading files or the network.
type refuseToLoad struct{}

func (refuseToLoad) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside of the schema", url)
}

// lenientRegexp lets a pattern that Go's regexp package does not know
// (look-around, back-references) match everything.
func lenientRegexp(pattern string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return anything(pattern), nil
	}
	return re, nil
}

type anything string

func (anything) MatchString(string) bool { return true }
func (a anything) String() string        { return string(a) }
