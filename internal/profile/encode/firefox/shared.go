package firefox

// writeShared writes the tables. All columns must be present, even if empty, or the front
// end does not load the profile.
func (t *tables) writeShared(j *jsonWriter) {
	j.object(func() {
		j.key("stackTable")
		t.writeStacks(j)
		j.key("frameTable")
		t.writeFrames(j)
		j.key("funcTable")
		t.writeFunctions(j)
		j.key("resourceTable")
		j.table(len(t.libs), func(n int) {
			j.column("name", n, func(i int) { j.int(int64(t.string(t.libs[i].Name))) })
			j.nulls("host", n)
			j.column("type", n, func(int) { j.int(resourceLibrary) })
		})
		j.key("nativeSymbols")
		j.table(len(t.natives), func(n int) {
			j.column("libIndex", n, func(i int) { j.int(int64(t.natives[i].lib)) })
			j.column("address", n, func(i int) { j.int(int64(t.natives[i].address)) })
			j.column("name", n, func(i int) { j.int(int64(t.natives[i].name)) })
			j.nulls("functionSize", n)
		})
		j.key("sources")
		j.table(len(t.sources), func(n int) {
			j.nulls("id", n)
			j.column("filename", n, func(i int) { j.int(int64(t.sources[i].name)) })
			j.column("startLine", n, func(int) { j.int(1) })
			j.column("startColumn", n, func(int) { j.int(1) })
			j.nulls("sourceMapURL", n)
			j.column("content", n, func(i int) {
				if !t.sources[i].has {
					j.null()
					return
				}
				j.string(t.sources[i].content)
			})
		})
		j.key("sourceLocationTable")
		j.table(0, func(n int) {
			for _, name := range [...]string{"source", "line", "column"} {
				j.nulls(name, n)
			}
		})
		j.column("stringArray", len(t.strings), func(i int) { j.string(t.strings[i]) })
	})
}

// resourceLibrary is ResourceType.Library of the front end.
const resourceLibrary = 1

func (t *tables) writeStacks(j *jsonWriter) {
	j.table(len(t.stacks), func(n int) {
		j.column("frame", n, func(i int) { j.int(int64(t.stacks[i].frame)) })
		j.column("prefixOffset", n, func(i int) {
			if t.stacks[i].parent == none {
				j.int(0)
				return
			}
			j.int(int64(i) - int64(t.stacks[i].parent))
		})
	})
}

func (t *tables) writeFrames(j *jsonWriter) {
	j.table(len(t.frames), func(n int) {
		j.column("address", n, func(i int) { j.int(t.frames[i].address) })
		j.column("lib", n, func(i int) { j.int(int64(t.frames[i].lib)) })
		j.column("inlineDepth", n, func(i int) { j.int(int64(t.frames[i].depth)) })
		j.column("category", n, func(i int) { j.int(int64(t.frames[i].category)) })
		j.column("subcategory", n, func(i int) { j.int(int64(t.frames[i].sub)) })
		j.column("func", n, func(i int) { j.int(int64(t.frames[i].function)) })
		j.column("nativeSymbol", n, func(i int) { j.orNull(int64(t.frames[i].native)) })
		j.nulls("innerWindowID", n)
		j.column("line", n, func(i int) { j.line(t.frames[i].line) })
		j.column("column", n, func(i int) { j.line(t.frames[i].column) })
		j.nulls("originalLocation", n)
	})
}

func (t *tables) writeFunctions(j *jsonWriter) {
	j.table(len(t.functions), func(n int) {
		j.column("name", n, func(i int) { j.int(int64(t.functions[i].name)) })
		j.column("isJS", n, func(int) { j.bool(false) })
		j.column("relevantForJS", n, func(int) { j.bool(false) })
		j.column("resource", n, func(i int) { j.int(int64(t.functions[i].resource)) })
		j.column("source", n, func(i int) { j.orNull(int64(t.functions[i].source)) })
		j.column("lineNumber", n, func(i int) { j.line(t.functions[i].line) })
		j.nulls("columnNumber", n)
		j.nulls("originalLocation", n)
	})
}

// table writes a table of n rows. columns writes its columns.
func (j *jsonWriter) table(n int, columns func(n int)) {
	j.object(func() {
		columns(n)
		j.member("length", n)
	})
}

// nulls writes a column of nulls.
func (j *jsonWriter) nulls(name string, n int) { j.column(name, n, func(int) { j.null() }) }

// line writes the number of a line or column, or null for 0.
func (j *jsonWriter) line(n int) {
	if n <= 0 {
		j.null()
		return
	}
	j.int(int64(n))
}
