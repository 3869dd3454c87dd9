package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCommandsInTextsAreMarked: a command in a message or a hint stands between
// backticks, so that it is told from the words around it. Help texts have lines of
// their own for commands.
func TestCommandsInTextsAreMarked(t *testing.T) {
	var verbs []string
	for _, c := range newRoot(&app{}).Commands() {
		verbs = append(verbs, c.Name())
	}
	command := regexp.MustCompile(`(?:^|[^\w./-])toolsd (?:` + strings.Join(verbs, "|") + `)\b`)
	help := []string{"Use", "Short", "Long", "Example"}
	// Commands on their own, which the texts that take them mark.
	alone := []string{"toolsd trust ", "toolsd trust --all", "toolsd call "}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				key, ok := n.Key.(*ast.Ident)
				return !ok || !slices.Contains(help, key.Name)
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if n.Kind != token.STRING || err != nil || slices.Contains(alone, text) {
					return true
				}
				for _, at := range command.FindAllStringIndex(text, -1) {
					if before := text[:at[1]]; !strings.Contains(text[at[0]:at[1]], "`") && strings.Count(before, "`")%2 == 0 {
						t.Errorf("%s: no backticks around the command in %q", set.Position(n.Pos()), text)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
