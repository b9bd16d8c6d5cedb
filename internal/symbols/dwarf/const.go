package dwarf

// Tags (7.5.3).
const (
	tagClassType         = 0x02
	tagEnumerationType   = 0x04
	tagLexicalBlock      = 0x0b
	tagCompileUnit       = 0x11
	tagStructureType     = 0x13
	tagUnionType         = 0x17
	tagInlinedSubroutine = 0x1d
	tagModule            = 0x1e
	tagWithStmt          = 0x22
	tagCatchBlock        = 0x25
	tagSubprogram        = 0x2e
	tagTryBlock          = 0x32
	tagInterfaceType     = 0x38
	tagNamespace         = 0x39
)

// Attributes (7.5.4).
const (
	attrSibling          = 0x01
	attrName             = 0x03
	attrStmtList         = 0x10
	attrLowPC            = 0x11
	attrHighPC           = 0x12
	attrCompDir          = 0x1b
	attrAbstractOrigin   = 0x31
	attrDeclLine         = 0x3b
	attrSpecification    = 0x47
	attrRanges           = 0x55
	attrCallColumn       = 0x57
	attrCallFile         = 0x58
	attrCallLine         = 0x59
	attrLinkageName      = 0x6e
	attrStrOffsetsBase   = 0x72
	attrAddrBase         = 0x73
	attrRnglistsBase     = 0x74
	attrDwoName          = 0x76
	attrMIPSLinkageName  = 0x2007
	attrGNUDwoName       = 0x2130
	attrGNUDwoID         = 0x2131
	attrGNURangesBase    = 0x2132
	attrGNUAddrBase      = 0x2133
	attrGNUDiscriminator = 0x2136
)

// Forms (7.5.6).
const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// Unit types (7.5.1).
const (
	unitCompile      = 0x01
	unitType         = 0x02
	unitPartial      = 0x03
	unitSkeleton     = 0x04
	unitSplitCompile = 0x05
	unitSplitType    = 0x06
)
