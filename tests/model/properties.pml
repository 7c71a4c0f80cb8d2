/* SPDX-License-Identifier: Apache-2.0 */
/* What `search` reads of a model: the property that fails, and the rules that act. Properties are an mtype of the model. */

/* A mutant is asked for one property and goes on past the others. */
#ifdef ONLY
#define IGNORED(property) (property != ONLY)
#else
#define IGNORED(property) false
#endif
inline must(condition, property)
{
	if
	:: (condition) || IGNORED(property) -> skip
	:: else -> printf("VIOLATED %e\n", property); assert(false)
	fi
}

/* A rule that no run reaches proves nothing: with REACH the search says where rules act. */
#ifdef REACH
#define reach(rule)                                                                                \
	c_code                                                                                     \
	{                                                                                          \
		static char said;                                                                  \
		if (!said)                                                                         \
			printf("REACHED " #rule "\n");                                             \
		said = 1;                                                                          \
	}
#define reach_if(condition, rule)                                                                  \
	if                                                                                         \
	:: (condition) -> reach(rule)                                                              \
	:: else -> skip                                                                            \
	fi
#else
#define reach(rule)		  skip
#define reach_if(condition, rule) skip
#endif
