// Prints V8's own name of a function of WebAssembly, which it has while it calls back, then calls it
// for ever. By hand: the module's function counts to its argument, calls back, and returns it.
const section = (id, ...content) => [id, content.length, ...content];
const i32 = 0x7f, [block, end, localGet, localTee, i32Const, i32Add, i32LtS, brIf, call] = [0x40, 0x0b, 0x20, 0x22, 0x41, 0x6a, 0x48, 0x0d, 0x10];
const body = [1, 1, i32, 0x03, block, localGet, 1, i32Const, 1, i32Add, localTee, 1, localGet, 0, i32LtS, brIf, 0, end, call, 0, localGet, 1, end];
const module = new WebAssembly.Module(new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
	...section(1, 2, 0x60, 1, i32, 1, i32, 0x60, 0, 0), // types: i32 to i32, nothing to nothing
	...section(2, 1, 1, 0x65, 1, 0x66, 0, 1), // import f of e
	...section(3, 1, 0),
	...section(7, 1, 5, ...Buffer.from("count"), 0, 1), // export function 1
	...section(10, 1, body.length, ...body)]));
let trace;
function calledBack() {
	trace ??= new Error().stack;
	let x = 0;
	for (let i = 0; i < 3e6; i++) x = (x + i) | 0;
	return x;
}
const instance = new WebAssembly.Instance(module, { e: { f: calledBack } });
function calls() { return instance.exports.count(3e6); }
calls();
console.log(JSON.stringify({ name: trace.match(/wasm-function\[\d+\]/)[0] }));
for (;;) calls();
