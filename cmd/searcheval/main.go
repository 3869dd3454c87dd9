// Searcheval runs the index package over a file of tools and a file of queries
// and prints what it found, so that rankings can be measured and compared.
//
// For each query it prints one line of JSON: {"id","ranked","us"}, ranked being
// at most 10 ids and us the time of the search in microseconds. With -stats it
// also prints measures against the "relevant" of each query on standard error.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "searcheval:", err)
		}
		os.Exit(2)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("searcheval", flag.ContinueOnError)
	flags.SetOutput(stderr)
	toolsFile := flags.String("tools", "", "`file` of tools, one JSON object a line: server, tool, description, inputSchema")
	queriesFile := flags.String("queries", "", "`file` of queries, one JSON object a line: id, query, relevant")
	withStats := flags.Bool("stats", false, "print hit@k, recall@k, MRR@10 and nDCG@10 on standard error")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *toolsFile == "" || *queriesFile == "" || flags.NArg() > 0 {
		flags.Usage()
		return errors.New("-tools and -queries are needed, and nothing else")
	}
	snapshot, err := load(*toolsFile)
	if err != nil {
		return err
	}
	queries, err := readLines[query](*queriesFile)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(stdout)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	results := make([]result, len(queries))
	for i, q := range queries {
		results[i] = search(snapshot, q)
		if err := lines.Encode(results[i]); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if *withStats {
		printStats(stderr, queries, results)
	}
	return nil
}
