package index

import (
	"strings"
)

// literals replaces what an agent copied into its query, a path, a file name or
// an address, by what it says about the tool that is looked for: that it takes a
// file of that kind, or a URL. The words inside of it are values, not wishes.
func literals(text string) string {
	if !strings.ContainsAny(text, `/\.0123456789`) {
		return text
	}
	var b strings.Builder
	last := 0
	for start := 0; start < len(text); {
		if isSpace(text[start]) {
			start++
			continue
		}
		end := start
		for end < len(text) && !isSpace(text[end]) {
			end++
		}
		if kind := literalKind(strings.Trim(text[start:end], `"'().,;:!?<>[]`+"`")); kind != "" {
			b.WriteString(text[last:start])
			b.WriteString(kind)
			last = end
			if c := text[end-1]; c == '.' || c == ',' || c == ';' || c == '!' || c == '?' {
				last--
			}
		}
		start = end
	}
	if last == 0 {
		return text
	}
	b.WriteString(text[last:])
	return b.String()
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func literalKind(word string) string {
	if len(word) < 4 {
		return ""
	}
	switch {
	case strings.Contains(word, "://"), strings.HasPrefix(word, "www."):
		return "url"
	case strings.HasPrefix(word, "~/"), strings.HasPrefix(word, "./"), strings.HasPrefix(word, "../"), strings.Count(word, "/") > 1 && word[0] == '/',
		len(word) > 2 && word[1] == ':' && (word[2] == '\\' || word[2] == '/'):
		return "file " + fileKind(word)
	}
	if k := fileKind(word); k != "" {
		return "file " + k
	}
	if looksRandom(word) {
		return "id"
	}
	return ""
}

// looksRandom reports whether a word is an identifier that a machine made:
// letters and digits that change places more often than words and versions do.
func looksRandom(word string) bool {
	if len(word) < 8 {
		return false
	}
	changes, digits := 0, 0
	for i := 0; i < len(word); i++ {
		c := word[i]
		digit := c >= '0' && c <= '9'
		if digit {
			digits++
		} else if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-') {
			return false
		}
		if i > 0 && digit != (word[i-1] >= '0' && word[i-1] <= '9') {
			changes++
		}
	}
	return digits >= 2 && changes >= 3
}

// fileKind is the extension of a file name that people give files, or nothing.
func fileKind(word string) string {
	dot := strings.LastIndexByte(word, '.')
	if dot < 1 {
		return ""
	}
	switch ext := strings.ToLower(word[dot+1:]); ext {
	case "md", "txt", "pdf", "doc", "docx", "xls", "xlsx", "csv", "tsv", "ppt", "pptx", "json", "xml", "yaml", "yml", "toml", "html", "htm", "css", "js", "ts", "py", "go", "rs", "java", "sh", "sql", "db", "sqlite",
		"png", "jpg", "jpeg", "gif", "svg", "webp", "mp3", "wav", "mp4", "zip", "tar", "gz", "log", "ipynb", "pcap":
		return ext
	}
	return ""
}
