package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// callArguments makes the JSON object of a call out of what was typed: pairs,
// --args, @file or - for standard input; one of them, or nothing for {}. schema
// is asked for the tool's definition only where a key=value needs its type.
func (a *app) callArguments(typed []string, flag *string, definition func() (json.RawMessage, error)) (json.RawMessage, error) {
	var sources []string
	use := func(name string) {
		if !slices.Contains(sources, name) {
			sources = append(sources, name)
		}
	}
	if flag != nil {
		use("--args")
	}
	file := ""
	for _, t := range typed {
		switch {
		case t == "-":
			use("- (standard input)")
		case t == "@":
			return nil, ipc.Errorf(ipc.CodeUsage, "there is no file name behind the @").
				WithHint("@file reads the arguments from a file, - reads them from standard input")
		case strings.HasPrefix(t, "@") && !strings.Contains(t, "="):
			use(t)
			file = t[1:]
		case strings.Contains(t, "="):
			use("key=value")
		default:
			return nil, ipc.Errorf(ipc.CodeUsage, "the argument %q is not key=value, key:=json, @file or -", t).
				WithHint("a text with spaces needs quotes: 'title=Fix the board'")
		}
	}
	if len(sources) > 1 {
		return nil, ipc.Errorf(ipc.CodeUsage, "the arguments come from %s at once", strings.Join(sources, " and ")).
			WithHint("use one of key=value, --args, @file and -")
	}
	switch {
	case len(sources) == 0:
		return json.RawMessage("{}"), nil
	case flag != nil:
		return jsonObject("--args", []byte(*flag))
	case typed[0] == "-":
		data, err := io.ReadAll(a.in)
		if err != nil {
			return nil, fmt.Errorf("reading the arguments from standard input: %w", err)
		}
		return jsonObject("standard input", data)
	case file != "":
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, ipc.Errorf(ipc.CodeUsage, "reading the arguments: %v", err).WithHint("@%s means the file %s, whose text is a JSON object", file, file)
		}
		return jsonObject(file, data)
	}
	return pairs(typed, definition)
}

// jsonObject checks that data is one JSON object, and returns it as it is.
func jsonObject(source string, data []byte) (json.RawMessage, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, ipc.Errorf(ipc.CodeUsage, "%s is empty, and must be a JSON object", source).WithHint(`{} stands for no arguments`)
	}
	var value json.RawMessage
	if err := ipc.DecodeStrict(data, &value); err != nil {
		return nil, ipc.Errorf(ipc.CodeUsage, "%s: %v", source, err).WithHint(`for example --args '{"key": "value"}'`)
	}
	if value = bytes.TrimSpace(value); value[0] != '{' {
		return nil, ipc.Errorf(ipc.CodeUsage, "%s must be a JSON object, not %.40s", source, value).WithHint(`for example --args '{"key": "value"}'`)
	}
	return value, nil
}

// pairs makes an object of key=value and key:=json. A value is a string unless
// the only type that the schema has for it is number, integer or boolean.
func pairs(typed []string, definition func() (json.RawMessage, error)) (json.RawMessage, error) {
	var object bytes.Buffer
	var types map[string]argument
	seen := map[string]bool{}
	for _, t := range typed {
		key, text, _ := strings.Cut(t, "=")
		key, isJSON := strings.CutSuffix(key, ":")
		switch {
		case key == "":
			return nil, ipc.Errorf(ipc.CodeUsage, "the argument %q has no name before the =", t)
		case seen[key]:
			return nil, ipc.Errorf(ipc.CodeUsage, "the argument %s is given twice", key).WithHint("a list is written %s:='[1, 2]'", key)
		}
		seen[key] = true
		value := ipc.Encode(text)
		if isJSON {
			var raw json.RawMessage
			if err := ipc.DecodeStrict([]byte(text), &raw); err != nil {
				return nil, ipc.Errorf(ipc.CodeUsage, "%s:= %v", key, err).WithHint("%s=… without the colon takes a text as it is", key)
			}
			value = raw
		} else {
			if types == nil {
				raw, err := definition()
				if err != nil {
					return nil, err
				}
				types = map[string]argument{}
				for _, a := range arguments(raw) {
					types[a.Name] = a
				}
			}
			if converted := convert(text, types[key]); converted != nil {
				value = converted
			}
		}
		if object.Len() == 0 {
			object.WriteByte('{')
		} else {
			object.WriteByte(',')
		}
		object.Write(bytes.TrimSpace(ipc.Encode(key)))
		object.WriteByte(':')
		object.Write(bytes.TrimSpace(value))
	}
	object.WriteByte('}')
	return object.Bytes(), nil
}

// convert returns text as the JSON of the argument's type, with the number as it
// was typed, or nil where it stays a string: then the check of the arguments
// says what is wrong with it.
func convert(text string, a argument) json.RawMessage {
	if !a.Sole {
		return nil
	}
	switch a.Type {
	case "number", "integer":
		var n json.Number
		if json.Unmarshal([]byte(text), &n) == nil && text != "null" && text[0] != '"' && strings.TrimSpace(text) == text {
			return json.RawMessage(text)
		}
	case "boolean":
		if text == "true" || text == "false" {
			return json.RawMessage(text)
		}
	}
	return nil
}

// misspelt yields the arguments that the schema names not, but nearly, with the
// name that may have been meant. A schema that forbids other arguments has the
// check of the arguments say it; one that does not lets a slip pass in silence.
func misspelt(definition, object json.RawMessage) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		var d struct {
			Schema struct {
				Others json.RawMessage `json:"additionalProperties"`
			} `json:"inputSchema"`
		}
		if json.Unmarshal(definition, &d) != nil || string(d.Schema.Others) == "false" {
			return
		}
		given := keysInOrder(object)
		var names, free []string
		for _, arg := range arguments(definition) {
			names = append(names, arg.Name)
			if !slices.Contains(given, arg.Name) {
				free = append(free, arg.Name)
			}
		}
		for _, name := range given {
			if slices.Contains(names, name) {
				continue
			}
			if near := tool.Nearest(name, free, 1); len(near) > 0 && !yield(name, near[0]) {
				return
			}
		}
	}
}
