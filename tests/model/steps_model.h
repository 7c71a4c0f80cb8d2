/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's ends as the table of steps sees them: what failover.pml calls with -DTABLE, in front
 * of a step (BEFORE) and behind it.
 *
 * It is compiled apart (steps_model.c), with optimisation, where spin's verifier itself is compiled
 * as quickly as can be: half of such a search would be the table.
 */
#ifndef HA_TESTS_MODEL_STEPS_MODEL_H
#define HA_TESTS_MODEL_STEPS_MODEL_H

#include "steps.h"

void model_before(unsigned end);
void model_does(unsigned end, unsigned on); /* something of its own */
void model_hears(unsigned end);		    /* the message in m_* */
void model_through(unsigned end);	    /* with that message */
void model_says(unsigned end);		    /* what is in m_* */
void model_peer_closed(unsigned end);
void model_goodbye(unsigned end);
void model_gave_up(unsigned end);

#endif
