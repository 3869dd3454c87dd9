package settings

// Place returns where a file has a text in the list of pinned, or in the tools of
// a category (categories.export); zeros when it has it nowhere.
func Place(data []byte, key, text string) (line, col int) {
	root, err := parse(data)
	if err != nil {
		return 0, 0
	}
	m := find(&root, key)
	if k, entry := lookUp(key); m != nil && k.name == "categories" && entry != "" {
		m = m.value.member("tools")
	}
	if m == nil {
		return 0, 0
	}
	for _, e := range m.value.elements {
		if e.kind == '"' && e.text == text {
			return position(data, e.start)
		}
	}
	return 0, 0
}
