function(seed)
	-- Numbers that depend only on the seed.
	local state = seed
	local function random(n)
		state = (state * 1103515245 + 12345) & 0x7fffffff
		return (state >> 8) % n
	end

	local function fannkuch(n)
		local p, q, s, sign, flips, sum = {}, {}, {}, 1, 0, 0
		for i = 1, n do p[i], q[i], s[i] = i, i, i end
		while true do
			local first = p[1]
			if first ~= 1 then
				for i = 2, n do q[i] = p[i] end
				local count = 1
				while true do
					local t = q[first]
					if t == 1 then
						sum = sum + sign * count
						if count > flips then flips = count end
						break
					end
					q[first] = first
					if first >= 4 then
						local i, j = 2, first - 1
						repeat q[i], q[j] = q[j], q[i]; i, j = i + 1, j - 1 until i >= j
					end
					first, count = t, count + 1
				end
			end
			if sign == 1 then
				p[1], p[2], sign = p[2], p[1], -1
			else
				p[2], p[3], sign = p[3], p[2], 1
				for i = 3, n do
					if s[i] ~= 1 then s[i] = s[i] - 1; break end
					if i == n then return sum, flips end
					s[i] = i
					local t = p[1]
					for j = 1, i do p[j] = p[j + 1] end
					p[i + 1] = t
				end
			end
		end
	end

	local function trees(depth)
		local function make(d)
			if d == 0 then return {} end
			return { make(d - 1), make(d - 1) }
		end
		local function count(t)
			if not t[1] then return 1 end
			return 1 + count(t[1]) + count(t[2])
		end
		return count(make(depth))
	end

	local function spectral(n)
		local function a(i, j) local k = i + j - 1; return 1.0 / (k * (k - 1) * 0.5 + i) end
		local function multiply(x, transposed)
			local y = {}
			for i = 1, n do
				local sum = 0
				for j = 1, n do sum = sum + x[j] * (transposed and a(j, i) or a(i, j)) end
				y[i] = sum
			end
			return y
		end
		local u, v = {}
		for i = 1, n do u[i] = 1 end
		for _ = 1, 3 do
			v = multiply(multiply(u), true)
			u = multiply(multiply(v), true)
		end
		local uv, vv = 0, 0
		for i = 1, n do uv, vv = uv + u[i] * v[i], vv + v[i] * v[i] end
		return string.format("%.9f", math.sqrt(uv / vv))
	end

	local function queens(n)
		local solutions = 0
		local columns, up, down = {}, {}, {}
		local function place(row)
			if row > n then solutions = solutions + 1; return end
			for c = 1, n do
				if not columns[c] and not up[row + c] and not down[row - c] then
					columns[c], up[row + c], down[row - c] = true, true, true
					place(row + 1)
					columns[c], up[row + c], down[row - c] = nil, nil, nil
				end
			end
		end
		place(1)
		return solutions
	end

	-- Words are counted, sorted by a function, and replaced.
	local function words(n)
		local text = {}
		for i = 1, n do
			local letters = {}
			for j = 1, 2 + random(4) do letters[j] = string.char(97 + random(8)) end
			text[i] = table.concat(letters)
		end
		local counts, all = {}, {}
		for w in table.concat(text, " "):gmatch("%a+") do
			if not counts[w] then all[#all + 1] = w end
			counts[w] = (counts[w] or 0) + 1
		end
		table.sort(all, function(x, y)
			if counts[x] ~= counts[y] then return counts[x] > counts[y] end
			return x < y
		end)
		local replaced = table.concat(text, " "):gsub("(%a)(%a)", "%2%1")
		return all[1], #all, #replaced, replaced:find("hg", 1, true)
	end

	-- Objects with inheritance, and a queue of closures.
	local function shapes(n)
		local shape = {}
		shape.__index = shape
		function shape.new(class, size) return setmetatable({ size = size }, class) end
		function shape:double() return 2 * self:area() end
		local square = setmetatable({}, shape)
		square.__index = square
		function square:area() return self.size * self.size end
		local circle = setmetatable({}, shape)
		circle.__index = circle
		function circle:area() return 3 * self.size * self.size end
		local queue, first, sum = {}, 1, 0
		for _ = 1, n do
			local s = shape.new(random(3) == 0 and circle or square, random(100))
			queue[#queue + 1] = function(scale) return s:double() // scale end
			if #queue - first > 50 then
				sum = sum + queue[first](1 + random(4))
				first = first + 1
			end
		end
		return sum
	end

	-- Numbers are sorted by a heap.
	local function heap(n)
		local h = {}
		for i = 1, n do
			local at, v = i, random(1 << 20)
			while at > 1 and h[at // 2] > v do h[at], at = h[at // 2], at // 2 end
			h[at] = v
		end
		local sum = 0
		for last = n, 2, -1 do
			sum = (sum * 31 + h[1]) & 0xffffffff
			local v, at = h[last], 1
			h[last] = nil
			while 2 * at < last do
				local child = 2 * at
				if child + 1 < last and h[child + 1] < h[child] then child = child + 1 end
				if h[child] >= v then break end
				h[at], at = h[child], child
			end
			h[at] = v
		end
		return sum
	end

	for _ = 1, 3 do
		print(fannkuch(8))
		print(trees(15))
		print(spectral(70))
		print(queens(7))
		print(words(60000))
		print(shapes(60000))
		print(heap(40000))
	end
end
